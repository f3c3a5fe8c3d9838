"""What the section on several processes computes, from made-up records."""

import types

import pytest

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports.sections import processes
from tests.sections import KEY, data_of, time_cell

USUAL = {"learners": 1, "sync": "synchronous", "transport": "shared", "weights": "shared", "ratio": "kept"}


def rate(arrangement, hz, op="rate", actors=1, interval=1, metrics=None, **more):
    options = {"workload": "cartpole_dqn", "update_interval": interval, "arrangement": arrangement, "actors": actors}
    options |= {"environments": 1, "presampled": 0, "learner": "dense", **USUAL, **more}
    return time_cell("training arrangement", arrangement, op, 1e6 / hz, batch=64, metrics=metrics, **options)


RATES = [
    rate("serial", 1_000), rate("apart", 1_500, metrics={"busiest": "learner"}), rate("apart", 2_000, op="bound"),
    rate("apart", 1_200, actors=2), rate("serial", 100, interval=8), rate("pipelined", 300, interval=8),
    rate("apart", 9_999, ratio="free"), rate("apart", 8_888, identity="0a0f8f13"), rate("apart", 7_777, learners=2),
]  # fmt: skip


def test_the_fastest_run_of_each_arrangement_is_drawn():
    rows = data_of(*RATES).select(processes.ARRANGEMENTS)
    assert rows.query("o_update_interval == 1").set_index("o_arrangement")["per_second"].to_dict() == pytest.approx(
        {"serial": 1_000, "apart": 1_500}
    )


def test_predicted_rates_stand_beside_those_of_the_machine(tmp_path, monkeypatch):
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / processes.FILE).touch()

    def predict(records, platform, options):
        answer = types.SimpleNamespace(hz=1_400, low=1_000, high=1_800)
        return [answer if option["arrangement"] == "apart" else None for option in options]

    monkeypatch.setattr(processes.platforms, "load", lambda path: path)
    monkeypatch.setattr(processes.laws, "predict_runs", predict)
    rows = processes.select_best(data_of(*RATES, results=tmp_path)).query("source == 'modeled'")
    columns = ["o_arrangement", "o_update_interval", *processes.ENDS]
    assert rows[columns].values.tolist() == [["apart, predicted", 1, 1_400, 1_000, 1_800]]


def test_a_rate_stands_beside_its_bound():
    table = processes.list_arrangements(data_of(*RATES)).query("o_arrangement == 'apart'")
    assert table["gradient steps/s"].to_list() == pytest.approx([1_500, 1_200])
    assert table["share of the bound (%)"].to_list() == pytest.approx([75, float("nan")], nan_ok=True)
    assert table["busiest"].iloc[0] == "learner"


def test_the_best_of_several_processes_is_compared_with_one():
    assert "1.50 to 3.00 times" in processes.say_gains(data_of(*RATES))
    assert processes.say_gains(data_of(rate("apart", 5))) == ""


SECONDS = {"environment step": 1e-4, "gradient step": 1e-3, "cycle": 0.5, "transfer": 1e-4, "cpu": 1.5}


def system(name, **seconds):
    options = {"workload": "hopper_td3", "rows": 1}
    return [time_cell("training transport", name, op, 1e6 * value, batch=128, **options)
            for op, value in {**SECONDS, **seconds}.items()]  # fmt: skip


def test_a_running_system_has_the_columns_of_the_quoted_table():
    found = processes.measure_systems(
        data_of(*system("queue 500", interval=2.0), *system("ring 5")[:5], *system("pipe")[:3])
    )
    (row,) = found.to_dict("records")  # the ring is gone, and the pipe lacks times
    wanted = {"cpu": 75, "sampled": 10_000, "updates": 1_000, "frames": 128_000, "cycle": 2.0, "age": 0.5, "loss": 10}
    assert {name: row[name] for name in wanted} == pytest.approx(wanted)


def test_quoted_rows_stand_below_the_measured_ones(tmp_path):
    (tmp_path / "quoted").mkdir()
    text = '[table_3.rows.QS5000]\nsource = "a paper"\nplace = "a table"\ncpu = 50\nloss = 45\n'
    (tmp_path / "quoted/hou2023.toml").write_text(text)
    table = processes.list_systems(data_of(*system("shared"), results=tmp_path))
    assert table["transport"].to_list() == ["shared", "QS5000"]
    assert table["loss (%)"].to_list() == pytest.approx([10, 45])


def test_looks_are_of_the_latest_search():
    def look(number, run):
        metrics = dict.fromkeys(processes.RATES, float(number)) | {"over": ""}
        options = {"look": number, "run": run, "actors": 1}
        return time_cell("training adaptation", "apart", "grid", 1, batch=32, metrics=metrics, **options)

    table = processes.list_looks(data_of(look(1, "2026-01"), look(2, "2026-02"), look(1, "2026-02")))
    assert table["sampling_hz"].to_list() == [1.0, 2.0]


def test_a_transfer_is_divided_by_its_records():
    rows = processes.select_transfers(data_of(time_cell("transport", "pipe", "send", 640, batch=64)))
    assert rows["record_us"].to_list() == pytest.approx([10])
