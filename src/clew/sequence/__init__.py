"""Labels of tokens: a tagger with feature dicts, entities, and files."""

from clew.sequence.entities import Entity, entity_f1, list_entities
from clew.sequence.tagger import SequenceTagger

__all__ = ["Entity", "SequenceTagger", "entity_f1", "list_entities"]
