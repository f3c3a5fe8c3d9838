"""Which to choose: from measured records to a recommendation."""

from .mapping.answer import MappingAnswer, Shortage
from .mapping.question import explain_mapping, recommend_mapping
from .recommend import Recommendation, recommend
from .records import Measurement, RecordError

__all__ = [
    "MappingAnswer",
    "Measurement",
    "Recommendation",
    "RecordError",
    "Shortage",
    "explain_mapping",
    "recommend",
    "recommend_mapping",
]
