"""Masks mended by a person: what an edit is, how one is made from clicks and strokes, and the edited movie."""
