"""The report's figures and section about other libraries, from records made up so that every answer is known."""

import dataclasses
import re

import pandas as pd
import pytest

from dse import accuracy
from dse.accuracy import ACCURACY_FILE, Accuracy
from dse.records import twins
from reports import building, kept, page, style, tidy
from reports.chart import Material
from reports.sections import peers as peer_section
from reports.sections import peers_figures, tree
from tests.made import alter
from tests.page.test_reports import KEY, NOTHING, PEER_AGAIN, PEERS, everything, no_picture, peers, record, write


def ns(name, part, batch, dtype="float32", **options):
    draw, update, call = PEERS[name, dtype, tuple(options.items())]
    return {"draw": draw, "update": update}[part] + call / batch


def both(*name, **options):
    name, batch, *dtype = name
    return ns(name, "draw", batch, *dtype, **options) + ns(name, "update", batch, *dtype, **options)


def text(found, folder):
    return peer_section.section(found, folder).replace("&#x27;", "'")


def rows(html, heading):
    """The cells of the table whose first column has this heading, by the texts of each row."""
    part = next(part for part in html.split("<table>")[1:] if f"<th>{heading}</th>" in part)
    lines = re.findall(r"<tr>(.*?)</tr>", part.split("</table>")[0])
    return [
        re.findall(r"<td(?: class=\"([^\"]*)\")?>(.*?)</td>", line)
        for line in lines
        if "<td" in line and "colspan" not in line
    ]


def test_the_sweeps_figures_and_noise_ignore_other_libraries(tmp_path):
    found = list(everything())
    without = [one for one in found if not one.primitive.startswith("peer")]
    assert tidy.about(found) == tidy.about(without)
    materials = [Material(some, tidy.about(some), tmp_path) for some in (without, found)]
    for chart in tree.CHARTS:
        if not chart.name.startswith(("peers", "gpu_batch")):
            old, new = (chart.rows(material).reset_index(drop=True) for material in materials)
            pd.testing.assert_frame_equal(old, new, check_categorical=False)
            codes = [part["contestant"].cat.codes.tolist() for part in (old, new)]
            assert codes[0] == codes[1]


def test_pairs_of_sweeps_and_of_other_libraries_are_not_mixed():
    found = list(everything())
    assert len(twins(found)) == 8
    pairs = twins(found, "peer")
    assert len(pairs) == 10
    assert all(again / first == pytest.approx(PEER_AGAIN) for first, again in pairs)


def test_the_figure_over_n_adds_draw_and_update():
    shown = peers_figures.by_capacity(tidy.tidy(list(peers()))).set_index(["label", "capacity"])
    assert shown["ns"]["tianshou", 1 << 20] == pytest.approx(both("tianshou", 128, "float64"))
    assert shown.index.is_unique
    lone = [one for one in peers() if one.op == "draw" or one.contestant != "rllib"]
    assert "rllib" not in set(peers_figures.by_capacity(tidy.tidy(lone))["label"])


def test_the_table_is_sorted_with_ours_bold_and_the_fastest_marked(tmp_path):
    held = rows(text(list(peers()), tmp_path), "implementation")
    assert [row[0][1] for row in held[:3]] == ["numba float32, unchecked", "numba float32", "numba float64"]
    by_name = {row[0][1]: row for row in held}
    assert [cell for _, cell in by_name["tianshou"]] == [
        "tianshou",
        "5.00x",
        "5,040",
        "5,040",
        "10,080",
        "44.9",
        "44.9",
        "89.8",
        "0.8",
    ]
    assert by_name["rllib"][-1][1] == "ray 0.5"
    assert all("ours" in classes for classes, _ in by_name["numba float32"][2:-1])
    # Draw, update and both at B = 1, then at B = 1,024, where only the update of torchrl is faster than ours.
    best = {name: ["best" in classes for classes, _ in row[2:-1]] for name, row in by_name.items()}
    assert best["numba float32, unchecked"] == [True, True, True, True, False, True]
    assert best["torchrl float32"] == [False, False, False, False, True, False]


def test_the_ratios_are_those_of_the_records(tmp_path):
    html = text(list(peers()), tmp_path)
    ratio = both("torchrl", 1_024) / both("numba", 1_024)
    told = f"takes 66.4 ns and numba 18.0 ns (measured), a ratio of {ratio:.2f}: numba wins."
    assert f"the best library, torchrl float32, {told}" in html
    checked, unchecked = both("numba", 1), both("numba", 1, validate=False)
    assert f"takes 1,216 ns and numba {checked:,.0f} ns (measured), a slowdown of {checked / unchecked:.2f}" in html
    assert "checks are 800 ns (40%), the rest is the two calls themselves" in html
    assert "A library is faster than all of ours in: update at B = 1,024 (torchrl float32 5.7 ns, numba float32" in html
    assert "at B = 16,384" not in html
    assert "The noise floor of the run is 2.0% over 10 A/A pairs" in html


def test_the_table_is_of_the_usual_n_though_more_batches_were_timed_at_another(tmp_path):
    more = [dataclasses.replace(one, batch=b) for one in peers() for b in (2, 4, 8) if one.capacity == 1 << 17]
    assert "N = 1,000,000, one thread" in text([*peers(), *more], tmp_path)


def test_two_threads_speed_up_who_lets_go_of_the_gil(tmp_path):
    held = rows(text(list(peers()), tmp_path), "speed-up")
    speed_ups = {row[0][1]: row[3][1] for row in held}
    assert speed_ups["numba float32"] == speed_ups["python"] == "2.00x"
    assert speed_ups["tianshou"] == "1.00x"
    assert [row[3][1] for row in held] == sorted(speed_ups.values(), reverse=True)


def test_who_is_absent_is_listed_with_the_reason(tmp_path):
    (absent,) = rows(text(list(everything()), tmp_path), "reason")
    assert [cell for _, cell in absent] == ["pfrl", "float64", "skipped", "pfrl is not &lt;here&gt;", "1", "draw"]


def test_only_one_run_is_compared(tmp_path):
    later = [
        alter(one, commit="another", capacity=2_000_000)
        for one in peers()
        if one.contestant == "tianshou" and one.batch == 1
    ]
    html = text([*peers(), *later], tmp_path)
    assert f"{len(later)} cells of other runs are omitted" in html
    assert html.count("another") == 0


def checks():
    """One finding of each kind."""
    kind = {"contestant": "tianshou", "dtype": "float64", "capacity": 1_000_000}
    yield Accuracy(**kind, check="wrong_leaf", trials=1_000, value=25)
    yield Accuracy(**kind, check="zero_leaf", trials=1_000, value=0)
    yield Accuracy(**kind, check="zero_leaf_at_0", trials=1, value=1.0, note="answered leaf 0")
    yield Accuracy(**kind, check="drift", trials=512_000, value=1.25e-7, note="read 2 for <1>")
    yield Accuracy(**kind, check="at_total", trials=0, value=None, note="takes no masses")
    yield Accuracy(**(kind | {"contestant": "numba"}), check="duplicates", trials=1, value=0.0)


def test_findings_are_shown_with_what_was_seen(tmp_path):
    accuracy.write(checks(), tmp_path / ACCURACY_FILE)
    html = text(list(peers()), tmp_path)
    ours, theirs = rows(html, "wrong leaf")
    assert [cell for _, cell in ours] == ["numba", "float64", "", "", "", "", "", "no"]
    assert ours[0][0] == "ours"
    assert theirs[2] == ("fault", "25 of 1,000 (2.5%)")
    for value, share in ((1_000, "100%"), (1, "0.1%")):
        finding = dataclasses.replace(next(one for one in checks() if one.value == 25), value=value)
        assert peer_section._finding(finding).text == f"{value:,} of 1,000 ({share})"
    assert theirs[3] == ("", "0 of 1,000")
    assert theirs[4] == ("fault", "yes<br><small>answered leaf 0</small>")
    assert theirs[5] == ("", "not checked<br><small>takes no masses</small>")
    assert theirs[6] == ("number", "1.2e-07<br><small>read 2 for &lt;1&gt;</small>")


def test_a_broken_file_of_checks_costs_only_its_table(tmp_path):
    (tmp_path / ACCURACY_FILE).write_text("[{}]")
    assert "not a file of this version" in text(list(peers()), tmp_path)


def test_a_machine_without_any_borrows_those_of_another_and_says_so(tmp_path):
    other = [alter(one, machine=one.machine | {"key": "elsewhere"}) for one in peers()]
    own = [record(10.0, capacity=n) for n in (1_000, 10_000)]
    material = Material(own, tidy.about(own), write(tmp_path, [*own, *other]))
    (section,) = peer_section.SECTIONS
    html = page.section_html(section, material)
    assert f"Measured on machine elsewhere, for machine {KEY} has no such records." in html
    assert len(rows(html, "implementation")) == len(PEERS)
    assert "; machine elsewhere, at " in html.partition("<summary>Rests on</summary>")[2]
    assert material.of("peer").about.key == "elsewhere"
    assert material.of("sum_tree") is material.of("no such primitive") is material


def of(key, found):
    """Records as another machine's."""
    return [alter(one, machine=one.machine | {"key": key}) for one in found]


def test_each_primitive_is_borrowed_where_it_was_timed_and_a_skipped_cell_is_no_time(tmp_path):
    own = [record(10.0), record(1, primitive="peer", status="skipped", reason="absent", **NOTHING)]
    others = of("libraries", peers()) + of("plugs", [record(10.0, primitive="plugin")])
    material = Material(own, tidy.about(own), write(tmp_path, [*own, *others]))
    borrowed = [material.of(name).about.key for name in ("peer", "plugin", "peer")]
    assert borrowed == ["libraries", "plugs", "libraries"]


def test_a_figure_of_borrowed_records_is_drawn_as_that_machines(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "picture", no_picture)
    own, told = [record(10.0)], []
    material = Material(own, tidy.about(own), write(tmp_path / "results", [*own, *of("elsewhere", peers())]))
    chart = next(chart for chart in tree.CHARTS if chart.name == "peers_batch")

    def draw(rows, about):
        told.append((about.key, *rows["machine"].unique()))
        return chart.draw(rows, about)

    chart_told = dataclasses.replace(chart, draw=draw)
    assert building._figures([chart_told], material, kept.Kept(tmp_path), building.How()) == ["peers_batch"]
    assert told == [("elsewhere", "elsewhere")]
