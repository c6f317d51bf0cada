"""The page with all plots."""

import html

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
img {{ max-width: 100%; height: auto }}
section {{ border-top: 1px solid #ccc; margin-top: 2.5rem }}
dt {{ font-weight: 600 }} dd {{ margin: 0 0 .6rem 0 }}
pre {{ background: #f5f5f5; padding: .7rem; overflow-x: auto; font-size: .85rem }}
table {{ border-collapse: collapse; font-size: .92rem; margin: 1rem 0 }}
th, td {{ text-align: left; padding: .15rem 1rem .15rem 0; border-bottom: 1px solid #ddd }}
nav a {{ margin-right: 1rem }}
small {{ color: #555 }}
</style></head><body>
<h1>{title}</h1>
<p>{about}</p>
<p><small>{setup}</small></p>
<nav>{links}</nav>
"""


TITLES = {
    "cudele": "The evaluation of Cudele, measured on this machine",
    "fpfs": "The evaluation of FPFS, measured on this machine",
}

ABOUT = {
    "cudele": """Ours is solid, the paper's is dashed, hollow or hatched. Error bars are standard deviations of the runs. The paper
(<i>Cudele: An API and Framework for Programmable Consistency and Durability in a Global Namespace</i>, IPDPS 2018) measured on 34 machines with Ceph;
its draft, from which figures 8, 9, 13 and updatedb are, with 9 object stores and 3 metadata servers. So ratios compare, absolute rates do not. A raw baseline stands beside every ratio.""",
    "fpfs": """Ours is solid, the thesis's is dashed. Error bars are confidence intervals for 95 %. The thesis of FPFS measured on up to 16 machines with
Gigabit Ethernet in chapters 4 to 6. So ratios compare, absolute rates do not; beside each rate stands the rate by processor time of all servers, and the share of a processor that the busiest
one used. The thesis prints most of its results as plots only: "not printed" stands where it has no number.""",
}


def page(whose, out, drawn):
    setup = out / "data" / "setup.txt"
    text = html.escape(setup.read_text().strip()) if setup.exists() else ""
    links = " ".join(f'<a href="#{name}">{name}</a>' for name, *_ in drawn)
    parts = [HEAD.format(title=html.escape(TITLES[whose]), about=ABOUT[whose], setup=text.replace("\n", " · "), links=links)]
    parts += [section(out, *one) for one in drawn]
    return "".join(parts) + "</body></html>\n"


def under(policies):
    """Which policy what was measured under: each name of a ratio, and its file."""
    return "; ".join(f'{html.escape(what)}: <a href="policies/{name}.yml">{name}.yml</a>' for what, name in policies.items())


def tabular(heads, rows):
    """A table of texts."""
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
    return "<table>" + line(heads, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def section(out, name, module, ours, paper):
    sources = "; ".join(paper.sources()) or "the paper prints no numbers for this one"
    if getattr(module, "NEW", False):
        sources = "the paper has no such figure"
    parts = [
        f'<section id="{name}"><h2>{html.escape(module.TITLE)}</h2>',
        f"<p>{html.escape(module.SHOWS)}</p>",
        f'<p><a href="{name}.svg"><img src="{name}.svg" alt="{html.escape(module.TITLE)}"></a></p>',
        f"<p><b>What differs.</b> {html.escape(module.says(ours, paper))}</p>",
        tabular(*module.table(ours, paper)) if hasattr(module, "table") else "",
        "".join(tabular(*one) for one in module.more_tables(ours, paper)) if hasattr(module, "more_tables") else "",
        "<dl>",
        f"<dt>Measured under</dt><dd>{under(module.POLICIES)}</dd>",
        f"<dt>Raw baseline</dt><dd>{html.escape(module.baseline(ours, paper))}</dd>",
        f'<dt>Data</dt><dd><a href="data/{name}.csv">data/{name}.csv</a>, '
        f'<a href="{name}.png">PNG</a>, <a href="{name}.svg">SVG</a>; {ours.repeats()} runs of each point</dd>',
        f"<dt>The paper's points</dt><dd>{html.escape(sources)}</dd></dl>",
    ]
    for policy in dict.fromkeys(module.POLICIES.values()):
        file = out / "policies" / f"{policy}.yml"
        if file.exists():
            parts.append(
                f'<details><summary>policy <a href="policies/{policy}.yml">{policy}.yml</a></summary>'
                f"<pre>{html.escape(file.read_text())}</pre></details>"
            )
    return "\n".join(parts) + "</section>\n"
