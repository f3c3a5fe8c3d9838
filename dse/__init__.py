"""Which to choose: from measured records to a recommendation."""

from .recommend import Recommendation, recommend
from .records import Measurement, RecordError

__all__ = ["Measurement", "Recommendation", "RecordError", "recommend"]
