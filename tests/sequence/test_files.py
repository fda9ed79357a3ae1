from __future__ import annotations

import json

import pytest

from clew.errors import InputError
from clew.sequence import SequenceTagger, read_tagged_text

TOKENS = [["Mr", "Ann", "Lee", "left"], ["Paris", "."]]
LABELS = [["O", "B-PER", "I-PER", None], [{"B-LOC", "B-PER"}, "O"]]


def write(folder, text):
    path = folder / "text"
    path.write_text(text, encoding="utf-8")
    return path


CONLL = """-DOCSTART- -X- O O

Mr NNP O
Ann NNP B-PER
Lee NNP I-PER
left VB _

Paris NNP B-LOC|B-PER
. . O
"""


@pytest.mark.parametrize(
    "text", [CONLL, CONLL.replace(" ", "\t"), "# id = 1\n" + CONLL]
)
def test_conll_has_unknown_labels_and_sets(tmp_path, text):
    read = read_tagged_text(write(tmp_path, text))
    assert read.tokens == TOKENS
    assert read.labels == LABELS


def test_iob_has_a_sentence_a_line(tmp_path):
    path = write(tmp_path, "Mr|O Ann|NNP|B-PER Lee|I-PER left|_\n\nParis|B-LOC .|O\n")
    read = read_tagged_text(path)
    assert read.tokens == TOKENS
    assert read.labels == [LABELS[0], ["B-LOC", "O"]]


def test_jsonl_answers_decide_what_is_known(tmp_path):
    text = "Mr Ann Lee left Paris."
    person = {"start": 3, "end": 10, "label": "PER"}
    place = {"start": 16, "end": 21, "label": "LOC"}
    lines = [
        {"text": text, "spans": [person, place], "answer": "accept"},
        {"text": text, "spans": [place], "answer": "accept", "_is_binary": True},
        {"text": text, "spans": [person], "answer": "reject"},
        {"text": text, "spans": [person], "answer": "ignore"},
        {
            "text": "Ann-Lee",
            "tokens": [{"text": "Ann-Lee", "start": 0, "end": 7, "id": 0}],
            "spans": [{"start": 0, "end": 7, "label": "PER"}],
        },
    ]
    path = write(tmp_path, "\n".join(json.dumps(line) for line in lines))
    read = read_tagged_text(path)
    assert read.tokens[0] == ["Mr", "Ann", "Lee", "left", "Paris", "."]
    assert read.labels[0] == ["O", "B-PER", "I-PER", "O", "B-LOC", "O"]
    assert read.labels[1] == [None, None, None, None, "B-LOC", None]
    possible = {"O", "B-LOC", "I-LOC", "I-PER"}
    assert read.labels[2] == [None, possible, None, None, None, None]
    assert read.labels[3] == ["B-PER"]
    assert read_tagged_text(path, is_complete=False).labels[0][0] is None
    X = [[{"w": token} for token in tokens] for tokens in read.tokens]
    tagger = SequenceTagger(C=1.0).fit(X[:2], read.labels[:2])
    assert tagger.score(X[:2], read.labels[:2]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\ntwo", "line 1: expected a token and a label"),
        ('{"text": "Ann"', "line 1: expected a JSON object"),
        ("[1]\n", "expected a token and a label"),
        (
            '{"text": "Ann", "spans": [{"start": 1, "end": 3, "label": "P"}]}',
            "begin and end",
        ),
        ('{"spans": []}', "line 1: expected a JSON object"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_tagged_text(write(tmp_path, text))


def test_docbin_of_spacy_survives(tmp_path):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    from spacy.tokens import Doc, DocBin, Span

    from clew.sequence.spacy_docs import read_docbin, set_entities, write_docbin

    vocab = spacy.blank("xx").vocab
    doc = Doc(vocab, words=TOKENS[0])
    doc.set_ents([Span(doc, 1, 3, label="PER")], missing=[doc[3:4]], default="outside")
    other = Doc(vocab, words=TOKENS[1])
    other.set_ents([], default="missing")
    other.spans["incorrect_spans"] = [Span(other, 0, 1, label="PER")]
    path = tmp_path / "text.spacy"
    DocBin(docs=[doc, other]).to_disk(path)
    read = read_docbin(path)
    assert read.tokens == TOKENS
    assert read.labels == [LABELS[0], [{"O", "I-PER"}, None]]
    assert read_docbin(path, None).labels[1] == [None, None]

    labels = [["O", "B-PER", "I-PER", None], ["B-LOC", "O"]]
    write_docbin(path, TOKENS, labels)
    docs = list(DocBin().from_disk(path).get_docs(vocab))
    assert [[e.text, e.label_] for e in docs[0].ents] == [["Ann Lee", "PER"]]
    assert docs[0][3].ent_iob_ == ""
    assert docs[1][1].ent_iob_ == "O"
    assert read_docbin(path).labels == labels
    set_entities([doc], [["B-LOC", "O", "O", "O"]])
    assert [entity.label_ for entity in doc.ents] == ["LOC"]
