"""Draws what was measured: python draw.py PAPER OUT, where OUT/data holds the CSV. Writes SVG, PNG and index.html there."""

import importlib
import pathlib
import sys

import page
import series

FIGURES = {
    "cudele": ("fig2", "fig3a", "fig3b", "fig3c", "fig5", "fig6a", "fig6b", "fig6c", "fig8", "fig9", "fig13", "updatedb", "coexist"),
    "fpfs": ("fig4", "tab5_1", "fig5_5", "fig5_6", "fig5_7", "fig5_12", "tab5_3", "fig5_16", "fig6_4", "fig6_6", "scale"),
}


def main(whose, out):
    out = pathlib.Path(out)
    drawn = []
    for name in FIGURES[whose]:
        data = out / "data" / f"{name}.csv"
        if not data.exists():
            continue
        module, ours, paper = importlib.import_module(name), series.read(data), series.paper(name)
        figure = module.plot(ours, paper)
        for ending in ("svg", "png"):
            figure.savefig(out / f"{name}.{ending}", metadata={"Date": None} if ending == "svg" else None)
        drawn.append((name, module, ours, paper))
    (out / "index.html").write_text(page.page(whose, out, drawn))
    print(out / "index.html")


if __name__ == "__main__":
    main(*sys.argv[1:])
