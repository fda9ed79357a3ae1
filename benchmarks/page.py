"""The annotation page: how fast it answers, how fast it learns, and whether it forgets.

    CLEW_DATA=… python benchmarks/page.py latency [--answers 40] [--simulated FOLDER]
    CLEW_DATA=… python benchmarks/page.py first [--simulated FOLDER] [--repeat 3]
    CLEW_DATA=… python benchmarks/page.py annotator [--blank] [--kind rods | --movie bacteria] [--plot FILE]
    python benchmarks/page.py kills [--kills 50] [--forked]
    CLEW_DATA=… python benchmarks/page.py edits [--edits 20]
    python benchmarks/page.py day [--actions 200]
    CLEW_DATA=… python benchmarks/page.py grow [MOVIE …]
    CLEW_DATA=… python benchmarks/page.py estimate --folder FOLDER KIND …

`latency` presses Enter in headless Chromium and measures there: from the key to the next question drawn with its
pictures, and from the key to predictions by weights that know the answer. `first` starts the page, on a movie that is new, measured, or was
opened before, and measures from the command to the first question. `annotator` answers from the truth with the
requests that the page sends, the suggested questions or events in random order, and prints the task loss on the whole
movie, and how many events are wrong beside what the page says of it. `kills` ends the server by SIGKILL at random
moments of a run of answers and edits of masks, and looks whether all acknowledged ones are there afterwards. `edits`
measures what an edit of masks costs in the server. `day` is 24 rounds of two tabs that answer, edit, undo and look, with
the worker killed now and then: memory, threads, open files and lost changes. `grow` removes cells of movies and clicks where they were. `estimate` compares
the estimate of wrong events with the truth, without a server. Everything is written into a temporary folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from page_annotator import annotator
from page_day import day
from page_edits import edits
from page_estimate import estimate
from page_first import first
from page_grow import grow
from page_kills import kills
from page_latency import latency


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("latency")
    one.set_defaults(run=latency)
    one.add_argument(
        "--answers",
        type=int,
        default=40,
        help="answers for the time to the next question",
    )
    one.add_argument(
        "--quick",
        type=int,
        default=12,
        help="answers for the time to new predictions, each in two ways",
    )
    one.add_argument(
        "--pause", type=float, default=0.5, help="seconds that the person thinks"
    )
    one.add_argument(
        "--simulated", type=Path, help="where the simulated movie is or is to be made"
    )
    one.add_argument("--only", default="", help="the beginning of a movie's name")
    two = commands.add_parser("annotator")
    two.set_defaults(run=annotator)
    two.add_argument("--answers", type=int, default=150)
    two.add_argument("--random", type=int, default=600)
    two.add_argument("--orders", nargs="+", default=["suggested", "random"])
    two.add_argument(
        "--pace",
        type=float,
        default=1.0,
        help="the most that an answer waits for new questions, in s",
    )
    two.add_argument("--blank", action="store_true", help="begin with no weights")
    two.add_argument("--seed", type=int, default=0)
    two.add_argument(
        "--movie",
        default="Fluo-N2DL-HeLa",
        help="a folder of CLEW_DATA, of which sequence 01 is taken",
    )
    two.add_argument(
        "--kind", default="", help="a simulated movie of this kind of cells instead"
    )
    two.add_argument("--frames", type=int, default=30, help="of the simulated movie")
    two.add_argument("--plot", type=Path)
    two.add_argument("--json", type=Path)
    three = commands.add_parser("kills")
    three.set_defaults(run=kills)
    three.add_argument("--kills", type=int, default=50)
    three.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="of a run of answers, at most, before the kill",
    )
    three.add_argument(
        "--forked",
        action="store_true",
        help="servers forked from one process, without a worker",
    )
    three.add_argument("--seed", type=int, default=0)
    four = commands.add_parser("edits")
    four.set_defaults(run=edits)
    four.add_argument("--edits", type=int, default=20)
    five = commands.add_parser("day")
    five.set_defaults(run=day)
    five.add_argument("--actions", type=int, default=200, help="in each hour")
    five.add_argument("--every", type=int, default=4, help="hours between two kills")
    five.add_argument("--seed", type=int, default=0)
    six = commands.add_parser("grow")
    six.set_defaults(run=grow)
    six.add_argument(
        "movies",
        nargs="*",
        default=["Fluo-N2DL-HeLa", "DIC-C2DH-HeLa", "PhC-C2DH-U373"],
        help="folders of CLEW_DATA, of which sequence 01 is taken",
    )
    seven = commands.add_parser("first")
    seven.set_defaults(run=first)
    seven.add_argument(
        "--simulated", type=Path, help="where the simulated movie is or is to be made"
    )
    seven.add_argument("--only", default="", help="the beginning of a movie's name")
    seven.add_argument("--repeat", type=int, default=1)
    eight = commands.add_parser("estimate")
    eight.set_defaults(run=estimate)
    eight.add_argument("kinds", nargs="+", help="as in kinds.py")
    eight.add_argument(
        "--folder", type=Path, required=True, help="where movies are, or are made"
    )
    eight.add_argument("--answers", type=int, nargs="+", default=[0, 25, 50, 100, 200])
    eight.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
