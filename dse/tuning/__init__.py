"""Answer how many: cores for actors and learners, batches sampled ahead, samplers, learners side by side."""

from collections.abc import Iterable

from ..answer import Note, evidence_notes, notes_of_records
from ..estimate import Evidence
from ..mapping.question import MappingQuestion


def name_system(question: MappingQuestion) -> dict[str, str]:
    """Return the names of the platform, the workload and the machine whose records answer."""
    return {
        "platform": question.platform.name,
        "workload": question.workload.name,
        "machine": question.machine,
    }


def note_records(question: MappingQuestion, sources: Iterable[Evidence]) -> list[Note]:
    """Note whose records answer, and what the answer rests on."""
    records = notes_of_records(question.machine_note, question.profile_notes)
    return [*records, *evidence_notes(sources)]
