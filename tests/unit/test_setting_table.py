"""Every setting of the table takes what it may be, and is refused what it may not be and where it changes nothing."""

import dataclasses
import math
import re

import pytest

from impls.training import TrainingError, load
from impls.training.__main__ import main
from impls.training.arrangement import COPIES, NEEDS, Arrangement, flag_of
from impls.training.options import parser, setup_of
from impls.training.settings import OPTIONS, check_ranges, faults_of, list_fields

WORKLOAD = load("cartpole_dqn")
RANGES = {
    name: (setting.rules["low"], setting.rules["high"]) for name, setting in OPTIONS.items() if "low" in setting.rules
}
KEYS = {f"{table}.{field.name}": (table, field) for table, fields in list_fields() for field in fields}
FIELDS = {field.name: field for field in dataclasses.fields(Arrangement) if field.metadata}
NAMED = {field.metadata.get("named", name): field for name, field in FIELDS.items()}
CONTEXTS = (
    "cartpole_dqn",
    "cartpole_dqn --arrangement apart",
    "cartpole_dqn --arrangement pipelined --learners 2 --sync hogwild",
    "cartpole_dqn --arrangement copies --processes 2",
    "cartpole_dqn --arrangement copies --sync server --replay shared",
    "cartpole_dyna_q",
    "cartpole_a3c",
)


def set_up(*words):
    return setup_of(load(words[0]), parser(None).parse_args(["train", *words]))


@pytest.mark.parametrize("name", sorted(RANGES.keys() - {"every"}))
def test_an_option_takes_its_bounds_and_nothing_beyond_them(name):
    low, high = RANGES[name]
    check_ranges({name: low})
    check_ranges({name: high})
    for value, bound in ((low - 1, f"at least {low:,}"), (high + 1, f"at most {high:,}")):
        with pytest.raises(TrainingError, match=re.escape(f"{flag_of(name)} must be {bound}, not {value}")):
            check_ranges({name: value})
    assert OPTIONS[name].rules["shape"] == "a number" or (type(low), type(high)) == (int, int)


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if "low" in field.metadata])
def test_a_program_is_refused_a_number_out_of_range(name):
    rules = FIELDS[name].metadata
    server = {"name": COPIES, "sync": "server"}  # whose copies may meet where an episode begins
    for value in (rules["low"], rules["high"]):
        assert getattr(Arrangement(**{**server, name: value}), name) == value
    for value in (rules["low"] - 1, rules["high"] + 1, 1.5, True):
        with pytest.raises(TrainingError, match=rf"{name} must be .* {rules['low']} to {rules['high']:,}, not {value}"):
            Arrangement(**{**server, name: value})


@pytest.mark.parametrize("name", [name for name, field in NAMED.items() if field.metadata.get("choices")] + ["sync"])
def test_a_misspelt_name_is_refused_with_those_there_are(name):
    field = NAMED[name]
    known = field.metadata["choices"] or ("synchronous", "lock", "hogwild", "local")
    misspelt = f"{known[-1]}x"
    with pytest.raises(TrainingError) as caught:
        set_up("cartpole_dqn", *([] if name == "arrangement" else ["--arrangement", "apart"]), flag_of(name), misspelt)
    assert all(word in str(caught.value) for word in (name, *known, f"not '{misspelt}'", f"did you mean '{known[-1]}'"))


@pytest.mark.parametrize("name", [name for name, (_, field) in KEYS.items() if "low" in field.metadata])
def test_a_key_takes_its_bounds_and_nothing_beyond_them(name):
    table, field = KEYS[name]
    rules, key = field.metadata, field.name
    shape = tuple if rules["shape"].startswith("an array") else type(rules["low"]) if table else int

    def faults(value):
        part = {key: (value,) if shape is tuple else value}
        part = {table: dataclasses.replace(getattr(WORKLOAD, table), **part)} if table else part
        return [fault for fault in faults_of(dataclasses.replace(WORKLOAD, **part)) if f"{key} must be a" in fault]

    above = rules.get("above")
    inside = (math.nextafter(rules["low"], math.inf) if above else rules["low"], rules["high"])
    assert not [fault for value in inside for fault in faults(value) if "and at most" in fault]
    for value in (rules["low"] if above else rules["low"] - 1, rules["high"] + 1):
        if value == field.default:
            continue  # it stands for a key that is left out
        (fault,) = [one for one in faults(value) if "and at most" in one]
        assert ("above " if above else "at least ") in fault
        assert f"{rules['high']:,}" in fault
        assert str(value)[:24] in fault


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", sorted({name for need in NEEDS for name in need.settings.split()} - {"mapping"}))
def test_an_option_is_refused_where_the_first_of_its_needs_is_not_met(context, name):
    workload, *given = context.split()
    if flag_of(name) in given:
        return
    field = NAMED.get(name)
    choices = field.metadata.get("choices") if field else None
    values = {"sync": "lock", "replay": "shared", "contestant": "flat", "alpha": "1"}
    value = values.get(name, choices[-1] if choices else "2")
    try:
        set_up(workload, *given, flag_of(name), value)
        said = ""
    except TrainingError as error:
        said = str(error)
    made = set_up(workload, *given)
    changes = {field.name: int(value) if "low" in field.metadata else value} if field else {}
    other, of = dataclasses.replace(made.arrangement, **changes), made.workload
    reasons = [need.reason for need in NEEDS if name in need.settings.split() and not need.is_met(other, of)]
    if reasons:
        assert said.startswith(f"{flag_of(name)} changes nothing {reasons[0].format(algorithm=of.algorithm)}")
    else:
        assert "changes nothing" not in said


def test_help_lists_every_option_in_its_group_and_begins_with_a_noun(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    for name, setting in OPTIONS.items():
        assert f"{setting.group}:" in said
        assert flag_of(name) in said
        assert setting.rules["help"].split()[0] not in ("of", "that", "how", "whether", "to")


def test_words_of_no_command_are_refused_with_the_command_that_was_meant(capsys):
    assert main(["cartpole_dqn", "--alpha", "0"]) == 2
    assert "python -m impls.training train cartpole_dqn --alpha 0" in capsys.readouterr().err
    assert main(["lsit"]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'list'" in said
    assert said.count("\n") == 1
    with pytest.raises(SystemExit, match="2"):
        main(["train", "cartpole_dqn", "--actros=3"])
    assert "did you mean '--actors'?" in capsys.readouterr().err
    assert main([]) == 0
    assert "python -m impls.training train cartpole_dqn" in capsys.readouterr().out
