"""python3 -m unittest, in this folder."""

import ast
import pathlib
import types
import unittest

import page
import series

HERE = pathlib.Path(__file__).parent
POLICIES = HERE / "../../../examples/policies"


def rows(*values):
    return [dict(zip(("series", "x", "run", "value", "unit"), value)) for value in values]


def draw_names():
    """FIGURES of draw.py, which needs matplotlib."""
    (names,) = [ast.literal_eval(node.value) for node in ast.parse((HERE / "draw.py").read_text()).body if isinstance(node, ast.Assign)]
    return [name for of_paper in names.values() for name in of_paper]


class Policies(unittest.TestCase):
    """What each figure says that it was measured under."""

    def test_each_is_a_file_of_the_examples(self):
        files = {file.stem for file in POLICIES.glob("**/*.yml")} | {"sync-0s", "sync-1s"}
        for figure in [HERE / f"{name}.py" for name in draw_names()]:
            body = ast.parse(figure.read_text()).body
            (said,) = [node.value for node in body if isinstance(node, ast.Assign) and node.targets[0].id == "POLICIES"]
            policies = eval(compile(ast.Expression(said), figure.name, "eval"), {})
            self.assertTrue(policies, figure.name)
            self.assertLessEqual(set(policies.values()), files, figure.name)

    def test_they_stand_beside_the_ratios(self):
        module = types.SimpleNamespace(
            TITLE="A title", SHOWS="", POLICIES={"rpcs": "posix", "all & more": "posix"},
            says=lambda *_: "", baseline=lambda *_: "one client",
        )
        text = page.section(HERE, "fig0", module, series.Data([]), series.Paper([]))
        self.assertIn('rpcs: <a href="policies/posix.yml">posix.yml</a>; all &amp; more: ', text)

    def test_ratios_that_a_text_names_stand_in_a_table(self):
        self.assertEqual(
            page.tabular(("what", "here"), [["a & b", "2 times"]]),
            "<table><tr><th>what</th><th>here</th></tr><tr><td>a &amp; b</td><td>2 times</td></tr></table>",
        )


class Aggregates(unittest.TestCase):
    def setUp(self):
        self.data = series.Data(
            rows(
                ("rpcs", "1", "0", "100", "creates/s"),
                ("rpcs", "20", "0", "300", "creates/s"),
                ("rpcs", "1", "1", "200", "creates/s"),
                ("rpcs", "20", "1", "500", "creates/s"),
                ("lone", "x", "0", "7", "s"),
            )
        )

    def test_runs_become_mean_and_deviation(self):
        one, twenty = self.data.points("rpcs")
        self.assertEqual((one.x, one.value, one.runs, one.unit), ("1", 150, 2, "creates/s"))
        self.assertAlmostEqual(one.deviation, 70.7107, 4)
        self.assertEqual((twenty.x, twenty.value), ("20", 400))

    def test_one_run_has_no_deviation(self):
        self.assertEqual(self.data.point("lone", "x").deviation, 0)
        self.assertEqual((self.data.runs(), self.data.repeats()), (2, "2"))

    def test_series_may_be_repeated_more_often_than_others(self):
        data = series.Data(rows(*(("often", "1", str(run), "1", "s") for run in range(5)), ("twice", "1", "1", "1", "s"), ("files", "all", "0", "9", "files")))
        self.assertEqual(data.repeats(), "2 to 5")
        self.assertEqual(series.Data([]).repeats(), "1")

    def test_one_run_is_told_from_the_others(self):
        self.assertEqual(self.data.one_run("rpcs", 1), [(1, 200), (20, 500)])

    def test_several_clients_of_a_run_count_each(self):
        data = series.Data(rows(("none", "7", "0", "1", "s"), ("none", "7", "0", "2", "s"), ("none", "7", "1", "6", "s")))
        self.assertEqual((data.point("none", 7).value, data.point("none", 7).runs, data.runs()), (3, 3, 2))

    def test_a_ratio_scales_the_deviation_too(self):
        one, twenty = self.data.over("rpcs", 150)
        self.assertEqual((one.value, one.unit), (1, "x"))
        self.assertAlmostEqual(twenty.value, 400 / 150)
        self.assertAlmostEqual(one.deviation, 70.7107 / 150, 6)

    def test_what_was_not_measured_is_none(self):
        self.assertIsNone(self.data.point("rpcs", 5))
        self.assertEqual(self.data.points("nobody"), [])


class Papers(unittest.TestCase):
    def test_every_point_has_a_source_and_a_number(self):
        for figure in ("fig3a", "fig3b", "fig5", "fig6a", "fig6b", "fig6c", "fig13"):
            paper = series.paper(figure)
            self.assertTrue(paper.rows, figure)
            for row in paper.rows:
                float(row["value"]), float(row["deviation"])
                self.assertTrue(row["source"] and row["unit"], row)

    def test_the_ratios_that_the_text_names_are_those_of_the_points(self):
        at = {name: series.paper("fig6a").point(name, 20).value for name in ("rpcs", "decoupled: create", "decoupled: create + merge")}
        self.assertAlmostEqual(at["decoupled: create"] / at["rpcs"], 91.7, 1)
        self.assertAlmostEqual(at["decoupled: create + merge"] / at["rpcs"], 3.37, 2)


class Words(unittest.TestCase):
    def test_numbers(self):
        for value, text in ((1_234_567, "1.23 million"), (45_678, "45,700"), (7.812, "7.81"), (0.0123, "0.0123")):
            self.assertEqual(series.human(value), text)
        self.assertEqual(series.human(549, "creates/s"), "549 creates/s")


if __name__ == "__main__":
    unittest.main()
