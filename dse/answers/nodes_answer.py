"""Answers about training over nodes, in addition to that of one machine or in its place."""

import shlex
from dataclasses import replace

from ..answer import Answer, Note, evidence_notes
from ..mapping.answer import MappingAnswer, Shortage
from ..mapping.nodes import NodesPlan, OverNodes, plan_nodes
from ..mapping.question import IMPLEMENTATIONS, OF_NODES, MappingQuestion
from ..times.whole import REFERENCE
from .mapping_answer import mapping_answer

OPTIONS = dict.fromkeys(("arrangement", "actors", *OF_NODES, *IMPLEMENTATIONS), "")
OPTIONS |= {name: f"--{name}" for name in ("batch", "fanout", "environments")}
"""By key of --fix, the option of training that says a value of it; "" where the plan says so."""

BOUNDS = {"learner": "bound_by_calling", "actors": "bound_by_actors_of_nodes"}
BOUNDS |= {"node": "bound_by_node", "network": "bound_by_network"}


def answer_with_nodes(
    question: MappingQuestion, found: MappingAnswer | Shortage, asked: str = ""
) -> tuple[Answer, OverNodes | None]:
    """Return the answer of one machine or, where that pays or is asked for, the one over nodes; and the plans.

    ``found``: the answer of one machine; ``asked``: as for ``mapping_answer``.
    """
    alone, plans = mapping_answer(found, asked), plan_nodes(question, found)
    if plans is None:
        return alone, None
    rows = tuple(plan.row() for plan in plans.plans)
    if not plans.is_taken:
        return replace(alone, rows=(*alone.rows, *rows), notes=(*alone.notes, plans.note)), plans
    words = words_of_plan(question, plans.best)
    line = "python -m impls.training train " + shlex.join([question.workload_argument, *words, "--cluster", "auto"])
    notes = [Note(BOUNDS[plans.best.side], {"nodes": plans.best.nodes}, "first"), plans.note]
    notes += [note for note in alone.notes if note.level == "warning"]
    notes += evidence_notes(dict.fromkeys(time.rests_on for time in plans.best.times.values()))
    others = (replace(alone.choice, says="one_machine"),) if alone.choice else ()
    choice = replace(plans.choice, more={**plans.choice.more, "runs_here": True})
    is_said = bool(question.workload_argument) and question.fix.keys() <= OPTIONS.keys()
    return Answer(alone.question, choice, rows, others, notes=tuple(notes), paste=(line,) if is_said else ()), plans


def words_of_plan(question: MappingQuestion, plan: NodesPlan) -> list[str]:
    """Return the options of training that run a plan, but for the cluster."""
    details = plan.learner.details
    named = {"arrangement": "nodes", "actor-nodes": plan.nodes, "actors": plan.actors}
    named |= {"batches-a-call": plan.batches_a_call, "learner": details.get("implementation", REFERENCE)}
    named |= {"policy": plan.policy, **({} if plan.is_on_processor else {"device": "cuda"})}
    words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
    for key, value in question.fix.items():
        words += [OPTIONS[key], str(value)] if OPTIONS.get(key) else []
    return words
