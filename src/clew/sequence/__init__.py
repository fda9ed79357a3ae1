"""Labels of tokens: a tagger with feature dicts, entities, and files."""

from clew.sequence.entities import Entity, entity_f1, list_entities
from clew.sequence.files import TaggedText, read_tagged_text
from clew.sequence.tagger import SequenceTagger

__all__ = [
    "Entity",
    "SequenceTagger",
    "TaggedText",
    "entity_f1",
    "list_entities",
    "read_tagged_text",
]
