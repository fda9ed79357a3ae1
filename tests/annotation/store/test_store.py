"""The store of annotations as its callers see it: answers, corrections, undo and redo, notes."""

import os
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.annotation.answers import Answer
from clew.annotation.store.history import Act, Contradiction, StaleRevision
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.errors import InputError, StoreError
from clew.tracking.events import Event, check_annotations

from ...helpers.effort import examples

MOVIE = MovieIdentity("cells", 10, 2, (64, 64), "0" * 40)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cells.annotations"


@pytest.fixture
def store(path):
    with Store.open(path, movie=MOVIE) as opened:
        yield opened


def rows(store: Store) -> list[tuple]:
    """What holds, as plain tuples."""
    annotations = store.annotations()
    return [
        (*event, bool(yes))
        for event, yes in zip(annotations.events, annotations.happened, strict=True)
    ]


def test_a_new_store_is_empty(store):
    assert (store.revision, len(store), store.can(Act.UNDO), store.can(Act.REDO)) == (
        0,
        0,
        False,
        False,
    )
    assert len(store.annotations()) == 0
    assert store.history() == []


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.posix
@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize(("shared", "mode"), [(False, 0o600), (True, 0o660)])
def test_store_is_the_owners_until_they_share_it(path, shared, mode):
    """SQLite's log and the marker beside an open store are as private as the store."""
    with Store.open(path, movie=MOVIE):
        pass
    if shared:
        path.chmod(mode)
    with Store.open(path, movie=MOVIE) as store:
        store.answer(3, Event.DIVIDE, [5], [18, 17], key="a")
        modes = {
            file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()
        }
    assert len(modes) >= 3
    assert set(modes.values()) == {mode}, modes


def test_answers_are_kept_in_order_and_after_reopening(path):
    with Store.open(path, movie=MOVIE) as store:
        assert store.answer(3, Event.DIVIDE, [5], [18, 17], key="a") == 1
        assert store.answer(0, Event.APPEAR, [], [2], key="b", revision=1) == 2
        assert (
            store.answer(0, Event.MERGE, [2, 1], [3], False, key="c", revision=2) == 3
        )
    expected = [
        (3, Event.DIVIDE, (5,), (17, 18), True),
        (0, Event.APPEAR, (), (2,), True),
        (0, Event.MERGE, (1, 2), (3,), False),
    ]
    with Store.open(path, movie=MOVIE) as store:
        assert rows(store) == expected
        assert store.annotations().row.tolist() == [1, 2, 3]
        assert (store.revision, len(store)) == (3, 3)
        assert [entry.key for entry in store.history()] == ["a", "b", "c"]
        assert all(
            datetime.now(UTC) - entry.time < timedelta(minutes=5)
            for entry in store.history()
        )


def test_numpy_integers_are_as_good(store):
    store.answer(
        np.int64(1),
        Event.MOVE,
        np.array([4], np.uint16),
        np.array([9]),
        np.True_,
        key="a",
    )
    assert rows(store) == [(1, Event.MOVE, (4,), (9,), True)]


def test_the_same_key_twice_is_one_answer(path):
    with Store.open(path, movie=MOVIE) as store:
        assert store.answer(1, Event.MOVE, [1], [1], key="a", revision=0) == 1
        assert (
            store.answer(1, Event.MOVE, [1], [1], key="a", revision=0) == 1
        )  # the reply was lost, asked again
        store.answer(2, Event.MOVE, [1], [1], key="b")
        assert store.undo_or_redo(Act.UNDO, key="u", revision=2) == 3
        assert store.undo_or_redo(Act.UNDO, key="u", revision=2) == 3
    with Store.open(path, movie=MOVIE) as store:  # and after a restart
        assert store.answer(1, Event.MOVE, [1], [1], key="a", revision=0) == 1
        assert store.undo_or_redo(Act.UNDO, key="u", revision=2) == 3
        assert store.undo_or_redo(Act.REDO, key="r") == 4
        assert store.undo_or_redo(Act.REDO, key="r") == 4
        assert (store.revision, len(store)) == (4, 2)


def test_a_key_cannot_mean_two_things(store):
    store.answer(1, Event.MOVE, [1], [1], key="a")
    with pytest.raises(
        InputError,
        match=r"key 'a' was given to move 1 → 1 from frame 1 to 2.*move 1 → 2",
    ):
        store.answer(1, Event.MOVE, [1], [2], key="a")
    with pytest.raises(InputError, match="key 'a' was that of answer"):
        store.undo_or_redo(Act.UNDO, key="a")
    assert store.revision == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\udc80", 7])
def test_a_key_is_a_short_text(store, key):
    with pytest.raises(InputError, match="the key of a change"):
        store.answer(1, Event.MOVE, [1], [1], key=key)
    assert store.revision == 0


def test_a_stale_revision_is_refused(store):
    store.answer(1, Event.MOVE, [1], [1], key="a")
    store.answer(2, Event.MOVE, [1], [1], key="b")
    for change in (
        lambda: store.answer(3, Event.MOVE, [1], [1], key="c", revision=1),
        lambda: store.undo_or_redo(Act.UNDO, revision=0),
    ):
        with pytest.raises(StaleRevision, match="at revision 2") as caught:
            change()
        assert isinstance(caught.value, StoreError)
        assert caught.value.present == 2
    assert store.revision == 2


def test_what_holds_already_is_not_kept_again(store):
    store.answer(1, Event.MOVE, [1], [1], key="a")
    assert store.answer(1, Event.MOVE, [1], [1], key="b") == 1
    assert len(store.history()) == 1


CLASHES = [
    ((1, Event.MOVE, [1], [2]), True, (1, Event.MOVE, [1], [3]), True),
    ((1, Event.MOVE, [1], [2]), True, (1, Event.MOVE, [4], [2]), True),
    ((1, Event.DIVIDE, [1], [2, 3]), True, (1, Event.APPEAR, [], [3]), True),
    ((1, Event.MERGE, [1, 2], [3]), True, (1, Event.DISAPPEAR, [2], []), True),
    ((1, Event.SPLIT, [1], [2, 3]), True, (1, Event.DIVIDE, [1], [3, 2]), True),
    ((1, Event.MOVE, [1], [2]), True, (1, Event.MOVE, [1], [2]), False),
    ((1, Event.MOVE, [1], [2]), False, (1, Event.MOVE, [1], [2]), True),
]


@pytest.mark.parametrize(
    ("first", "first_happened", "second", "second_happened"), CLASHES
)
def test_a_contradiction_names_both_events_and_keeps_neither_twice(
    store, first, first_happened, second, second_happened
):
    store.answer(*first, first_happened, key="a")
    before = rows(store)
    with pytest.raises(Contradiction) as caught:
        store.answer(*second, second_happened, key="b")
    assert str(Answer.of(*first, first_happened)) in str(caught.value)
    assert str(Answer.of(*second, second_happened)) in str(caught.value)
    assert [entry.revision for entry in caught.value.existing] == [1]
    assert (store.revision, rows(store)) == (1, before)


@pytest.mark.parametrize(
    ("second", "happened"),
    [
        ((1, Event.MOVE, [3], [4]), True),
        ((2, Event.MOVE, [1], [2]), True),  # another frame
        ((0, Event.MOVE, [3], [1]), True),  # what cell 1 of frame 1 was before
        ((1, Event.MOVE, [2], [1]), True),  # cell 2 of frame 1 is not cell 2 of frame 2
        ((1, Event.MOVE, [1], [3]), False),
    ],
)
def test_what_does_not_contradict_is_kept(store, second, happened):
    store.answer(1, Event.MOVE, [1], [2], key="a")
    assert store.answer(*second, happened, key="b") == 2


def test_a_correction_keeps_its_history_and_undo_brings_the_old_back(path):
    old = [(1, Event.MOVE, (1,), (2,), True), (1, Event.MOVE, (5,), (3,), True)]
    new = (1, Event.DIVIDE, (1,), (2, 3), True)
    with Store.open(path, movie=MOVIE) as store:
        for i, answer in enumerate(old):
            store.answer(*answer, key=str(i))
        assert store.answer(*new, key="c", replace=True) == 3
        assert rows(store) == [new]
        assert store.entry(3).replaced == (1, 2)
        assert [entry.answer.event for entry in store.history()] == [
            Event.MOVE,
            Event.MOVE,
            Event.DIVIDE,
        ]
        with pytest.raises(Contradiction, match="revision 3, divide 1"):
            store.answer(1, Event.MOVE, [5], [3], key="d")
    with Store.open(path, movie=MOVIE) as store:
        assert store.undo_or_redo(Act.UNDO) == 4
        assert rows(store) == old
        assert store.undo_or_redo(Act.REDO) == 5
        assert rows(store) == [new]


def test_undo_and_redo_survive_reopening_without_limit(path):
    n = 40
    with Store.open(path, movie=MOVIE) as store:
        for i in range(n):
            store.answer(i % 9, Event.MOVE, [i + 1], [i + 1], key=str(i))
    for left in range(n - 1, -1, -20):
        with Store.open(path, movie=MOVIE) as store:
            while len(store) > left:
                store.undo_or_redo(Act.UNDO)
    with Store.open(path, movie=MOVIE) as store:
        while store.can(Act.UNDO):
            store.undo_or_redo(Act.UNDO)
        assert len(store) == 0
        assert store.undo_or_redo(Act.UNDO) is None  # past the start: nothing
        assert store.undo_or_redo(Act.UNDO, key="u", revision=store.revision) is None
        assert (store.revision, len(store)) == (2 * n, 0)
    with Store.open(path, movie=MOVIE) as store:
        for _ in range(n):
            assert store.undo_or_redo(Act.REDO) is not None
        assert store.undo_or_redo(Act.REDO) is None
        assert (store.revision, len(store)) == (3 * n, n)


def test_an_answer_after_undo_ends_redo_but_the_history_has_all(store):
    store.answer(1, Event.MOVE, [1], [2], key="a")
    store.undo_or_redo(Act.UNDO)
    store.answer(1, Event.MOVE, [1], [3], key="b")
    assert not store.can(Act.REDO)
    assert store.undo_or_redo(Act.REDO) is None
    assert [
        (entry.act, entry.answer.targets, entry.of) for entry in store.history()
    ] == [(Act.ANSWER, (2,), 1), (Act.UNDO, (2,), 1), (Act.ANSWER, (3,), 3)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((9, Event.MOVE, [1], [1]), "10 frames"),
        ((-1, Event.MOVE, [1], [1]), "10 frames"),
        ((1.0, Event.MOVE, [1], [1]), "frame is 1.0"),
        ((True, Event.MOVE, [1], [1]), "frame is True"),
        ((1, 9, [1], [1]), "event is 9; expected one of"),
        ((8, Event.GAP, [1], [1]), "10 frames"),
        ((1, "move", [1], [1]), "event is 'move'"),
        ((1, Event.MOVE, [1, 2], [1]), "sources of move are .* expected 1"),
        ((1, Event.DIVIDE, [1], [2]), "targets of divide are .* expected 2"),
        ((1, Event.DIVIDE, [1], [2, 2]), "different cells"),
        ((1, Event.APPEAR, [1], [2]), "sources of appear are .* expected 0"),
        ((1, Event.MOVE, [0], [1]), "over 0"),
        ((1, Event.MOVE, [1], [2**63]), "under 2"),
        ((1, Event.MOVE, ["1"], [1]), "source of move is '1'"),
        ((1, Event.MOVE, "1", [1]), "expected 1"),
        ((1, Event.MOVE, None, [1]), "expected 1"),
        ((1, Event.MOVE, [1], [1], "no"), "happened is 'no'"),
    ],
)
def test_an_impossible_answer_is_refused(store, answer, message):
    with pytest.raises(InputError, match=message):
        store.answer(*answer, key="a")
    assert store.revision == 0


def test_notes(path):
    with Store.open(path, movie=MOVIE) as store:
        assert store.get_setting("place") is None
        assert store.get_setting("place", 0) == 0
        store.set_setting("place", {"frame": 3, "label": None})
        store.set_setting("curve", [[1, 0.5]])
        store.set_setting("place", {"frame": 4})
        assert store.revision == 0
        for bad in (float("nan"), {1, 2}, object()):
            with pytest.raises(InputError, match="setting 'place'"):
                store.set_setting("place", bad)
    with Store.open(path, movie=MOVIE) as store:
        assert (store.get_setting("place"), store.get_setting("curve")) == (
            {"frame": 4},
            [[1, 0.5]],
        )


def test_setting_is_returned_as_a_copy(store):
    store.set_setting("curve", [1])
    store.get_setting("curve").append(2)
    assert store.get_setting("curve") == [1]


def test_answering_does_not_read_the_history_again(store):
    def statements(n: int) -> list[str]:
        seen = []
        store._connection.set_trace_callback(seen.append)
        store.answer(n % 9, Event.MOVE, [n], [n], key=str(n))
        store._connection.set_trace_callback(None)
        return [statement.split()[0] for statement in seen]

    few = statements(1)
    store._connection.execute("PRAGMA synchronous = OFF")
    for n in range(2, 500):
        store.answer(n % 9, Event.MOVE, [n], [n], key=str(n))
    assert statements(500) == few == ["BEGIN", "INSERT", "UPDATE", "COMMIT"]


def test_every_commit_waits_for_the_disk(store):
    settings = {"synchronous": 2, "journal_mode": "wal", "locking_mode": "exclusive"}
    assert {
        name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in settings
    } == settings


def test_threads_may_answer_at_once(store):
    def work(name: int) -> None:
        for i in range(20):
            store.answer(
                i % 9,
                Event.MOVE,
                [100 * name + i + 1],
                [100 * name + i + 1],
                key=f"{name}-{i}",
            )

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.revision, len(store)) == (80, 80)
    assert len({entry.key for entry in store.history()}) == 80


def test_a_closed_store_says_so(path):
    store = Store.open(path, movie=MOVIE)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.answer(1, Event.MOVE, [1], [1], key="a")
    assert store.revision == 0


SMALL = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from(list(Event)),
    st.permutations([1, 2, 3]),
    st.permutations([1, 2, 3]),
).map(lambda a: (a[0], a[1], a[2][: a[1].arity[0]], a[3][: a[1].arity[1]]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), SMALL, st.booleans(), st.booleans()),
        st.just(("undo",)),
        st.just(("redo",)),
        st.tuples(
            st.just("many"), st.lists(st.tuples(SMALL, st.booleans()), max_size=4)
        ),
        st.just(("reopen",)),
    ),
    max_size=25,
)


@given(steps=STEPS)
@examples(40)
def test_any_sequence_is_as_with_a_list_of_states(steps, tmp_path_factory):
    """Against the plainest model: all states in a list, a place in it, and every pair of answers compared."""
    path = tmp_path_factory.mktemp("law") / "store"
    states: list[dict] = [{}]  # fact → happened
    changes = [0]  # that led to each state: several answers at once are undone at once
    place = revision = 0
    store = Store.open(path, movie=MOVIE)
    store._connection.execute("PRAGMA synchronous = OFF")
    for i, (act, *arguments) in enumerate(steps):
        if act == "reopen":
            store.close()
            store = Store.open(path, movie=MOVIE)
            store._connection.execute("PRAGMA synchronous = OFF")
        elif act == "answer":
            fact, happened, replace = arguments
            answer = Answer.of(*fact, happened)
            now = states[place]
            clashes = [
                other
                for other, yes in now.items()
                if (other == answer.fact and yes != happened)
                or (
                    other != answer.fact
                    and yes
                    and happened
                    and shares_a_cell(other, answer.fact)
                )
            ]
            if clashes and not replace:
                with pytest.raises(Contradiction) as caught:
                    store.answer(*fact, happened, key=str(i))
                assert {entry.answer.fact for entry in caught.value.existing} == set(
                    clashes
                )
            elif now.get(answer.fact) == happened:
                assert (
                    store.answer(*fact, happened, key=str(i), replace=replace)
                    == revision
                )
            else:
                revision += 1
                assert (
                    store.answer(*fact, happened, key=str(i), replace=replace)
                    == revision
                )
                kept = {
                    other: yes for other, yes in now.items() if other not in clashes
                }
                states = [*states[: place + 1], {**kept, answer.fact: happened}]
                changes = [*changes[: place + 1], 1]
                place += 1
        elif act == "many":
            (given,) = arguments
            now = dict(states[place])
            for fact, happened in given:
                answer = Answer.of(*fact, happened)
                clashes = (
                    yes and happened and shares_a_cell(other, answer.fact)
                    for other, yes in now.items()
                )
                if answer.fact not in now and not any(clashes):
                    now[answer.fact] = happened
            new = len(now) - len(states[place])
            assert (
                store.answer_many(
                    [(Answer.of(*fact, yes), ()) for fact, yes in given], key=str(i)
                )
                == new
            )
            if new:
                states, changes = (
                    [*states[: place + 1], now],
                    [*changes[: place + 1], new],
                )
                place, revision = place + 1, revision + new
        else:
            step = -1 if act == "undo" else 1
            possible = 0 <= place + step < len(states)
            assert possible == store.can(Act(act))
            if possible:
                revision += changes[place if act == "undo" else place + 1]
                place += step
            assert store.undo_or_redo(Act(act)) == (revision if possible else None)
        assert {row[:4]: row[4] for row in rows(store)} == states[place]
        assert (store.revision, len(store), len(store.history())) == (
            revision,
            len(states[place]),
            revision,
        )
        check_annotations(store.annotations(), lambda t: [1, 2, 3], MOVIE.n_frames)
    store.close()


def shares_a_cell(a: tuple, b: tuple) -> bool:
    """A gap ends a frame later than other events do."""
    leaves = a[0] == b[0] and set(a[2]) & set(b[2])
    arrives = a[0] + a[1].span == b[0] + b[1].span and set(a[3]) & set(b[3])
    return bool(leaves or arrives)
