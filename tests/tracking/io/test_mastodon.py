"""Projects of Mastodon that are damaged, or made to exhaust memory."""

import os
import zipfile

import numpy as np
import pytest

from clew.errors import ClewError, InputError
from clew.tracking.io.mastodon import (
    LINK,
    MAX_BYTES,
    MODEL,
    SPOT,
    encode_model,
    read_mastodon,
)


@pytest.fixture
def project(tmp_path):
    """A project of two spots and a link."""
    spots = np.zeros(2, SPOT)
    spots["frame"] = [0, 1]
    spots["position"] = [[1, 2, 0], [2, 3, 0]]
    links = np.zeros(1, LINK)
    links["spots"] = [[0, 1]]
    with zipfile.ZipFile(tmp_path / "a.mastodon", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MODEL, encode_model(spots, links, ["1", "1"]))
    return tmp_path / "a.mastodon"


def test_every_flipped_byte_is_noticed_or_harmless(project):
    expected = read_mastodon(project).position
    data = bytearray(project.read_bytes())
    refused = []
    for at in range(len(data)):
        data[at] ^= 0xFF
        project.write_bytes(data)
        try:
            np.testing.assert_array_equal(read_mastodon(project).position, expected)
        except ClewError as error:
            refused.append(str(error))
        data[at] ^= 0xFF
    assert len(refused) > 50
    assert all("a.mastodon" in words for words in refused)


def test_model_that_unpacks_to_too_much_is_refused(project):
    with zipfile.ZipFile(project, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MODEL, bytes(MAX_BYTES + 1))
    with pytest.raises(InputError, match="made to exhaust memory"):
        read_mastodon(project)


@pytest.mark.parametrize("count", [2**31 - 1, 2**32 - 1])
def test_spots_that_are_not_there_are_refused(tmp_path, count):
    data = bytearray(encode_model(np.zeros(2, SPOT), np.zeros(0, LINK), ["1", "2"]))
    at = data.index((2).to_bytes(4, "big"))
    data[at : at + 4] = count.to_bytes(4, "big")
    (tmp_path / MODEL).write_bytes(data)
    with pytest.raises(InputError, match="ends too early"):
        read_mastodon(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_in_place_of_the_model_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / MODEL)
    with pytest.raises(ClewError, match="is not a file"):
        read_mastodon(tmp_path)
