"""QP solvers for the model update: min_w λ/2 ‖w‖² + <v, w> + Σ_g max_{k ∈ g} (<a_k, w> + b_k).

    pip install -e '.[bench]'
    OMP_NUM_THREADS=1 python benchmarks/master.py            # under four minutes
    OMP_NUM_THREADS=1 python benchmarks/master.py --bounds 50 500 --weights 40

For each size it prints, for each solver, the median milliseconds and the duality gap reached. The gap is computed in
the same way for all, whatever a solver says about itself: the primal value at its w minus the dual value (Eq. 14) at
its α put on the simplices, relative to the model's value at w = 0. Solvers of the dual get their w from Eq. 15.

The bundles are made as learning makes them: the bounds are tangents of a convex function per group, at points scattered
around the minimum, and they go through `Bundle.add`. Slopes are dense for few weights and have about 5 % non-zeros for
many. λ is searched so that a third of the bounds is active, as far as a λ that one would use can do that: no more than
weights + groups can be. The table says how many are.

What would take too long is left out ("–"), predicted from the next smaller number of bounds by a power of their ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

from clew.learning.bounds import Bundle, dual_value
from clew.learning.dual_ascent import ascend
from clew.learning.interior_point import project_to_simplices, solve_interior_point
from clew.learning.losses import LinearBounds
from clew.learning.model_update import solve_model_update

try:
    import piqp
except ImportError:
    piqp = None
try:
    import daqp
except ImportError:
    daqp = None

Array = np.ndarray
Solution = tuple[Array, Array]
"""α as the solver gave it, and w."""

TOL = 1e-6
"""Relative gap that clew's own updates are asked for; the programmes written here have the tolerance 1e-9."""
DENSE_WEIGHTS = 500
DENSITY = 0.05
NEW = 0.05
ACTIVE = 1 / 3
LAMS = (1e-5, 10.0)
"""λ is searched between these, for each group: a mean loss of about one and slopes of about one belong to them."""
NEAR = 0.03
"""How far the functions' minima are from where their tangents' points are scattered around, at a distance of one."""
REPETITIONS = 3
LONG = 5.0
"""A run that takes longer than this many seconds is not repeated."""


@dataclass(frozen=True)
class Problem:
    """A model update, and the same with the newest bounds not yet added but solved before."""

    bundle: Bundle
    solved: Bundle
    v: Array
    lam: float
    scale: float
    active: float


@dataclass(frozen=True)
class Solver:
    """A column of the table."""

    name: str
    solve: Callable[[Problem], Solution]
    limit: float = 60.0
    """Seconds that a run may take, by prediction."""
    power: float = 3.0
    """Time is predicted to grow with this power of the number of bounds."""
    max_bounds: int = 10**9
    installed: bool = True


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure QP solvers for the model update, in one table."
    )
    parser.add_argument(
        "--bounds",
        type=int,
        nargs="+",
        default=[50, 500, 3000],
        metavar="K",
        help="numbers of bounds",
    )
    parser.add_argument(
        "--weights",
        type=int,
        nargs="+",
        default=[40, 4000],
        metavar="D",
        help="numbers of weights",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random bundles")
    parser.add_argument(
        "--budget",
        type=float,
        default=210,
        help="seconds for all; runs that exceed it are left out",
    )
    options = parser.parse_args()
    measure(
        sorted(options.bounds), sorted(options.weights), options.seed, options.budget
    )


def measure(bounds: list[int], weights: list[int], seed: int, budget: float) -> None:
    begin = time.perf_counter()
    solvers = [
        Solver("clew's\ninterior point", own_interior_point),
        Solver("Clarabel dual", clarabel_dual, limit=30.0),
        Solver("PIQP primal", piqp_primal, installed=piqp is not None),
        Solver("DAQP dual", daqp_dual, max_bounds=500, installed=daqp is not None),
        Solver("ascent\ncold", ascent_cold, power=2.0),
        Solver("ascent\nwarm", ascent_warm, power=2.0),
    ]
    table = Table(title="Model update: median ms, and relative duality gap reached")
    for name in ("bounds", "weights", "groups", "λ", "active"):
        table.add_column(name, justify="right")
    for solver in solvers:
        table.add_column(solver.name, justify="right")
    console = Console(width=160)
    ascent_cold(make_problem(50, 5, 40, seed))  # compiles
    with console.status("") as status:
        for d in weights:
            for several in (False, True):
                seconds: dict[str, tuple[int, float]] = {}
                for k in bounds:
                    groups = max(2, k // 10) if several else 1
                    status.update(f"{k} bounds, {d} weights, {groups} groups")
                    problem = make_problem(k, groups, d, seed)
                    cells = []
                    for solver in solvers:
                        left = budget - (time.perf_counter() - begin)
                        cells.append(cell(solver, problem, seconds, left))
                    row = (
                        f"{k:,}",
                        f"{d:,}",
                        f"{groups}",
                        f"{problem.lam:.2g}",
                        f"{100 * problem.active:.0f} %",
                    )
                    table.add_row(*row, *cells, end_section=k == bounds[-1])
    table.caption = (
        f"gap: primal at w − dual at α, relative to the model's value at w = 0; median of {REPETITIONS}, "
        f"* one run (over {LONG:.0f} s);\nwarm: solved, then {100 * NEW:.0f} % new bounds; "
        f"–: not run, too long by prediction or too large for it; {time.perf_counter() - begin:.0f} s in all"
    )
    console.print(table)


def cell(
    solver: Solver, problem: Problem, seconds: dict[str, tuple[int, float]], left: float
) -> str:
    """What the table says about a solver and a problem; `seconds` remembers its last size and time."""
    if not solver.installed:
        return "– (not installed)"
    k = len(problem.bundle)
    if k > solver.max_bounds:
        return "–"
    if solver.name in seconds:
        smaller, took = seconds[solver.name]
        # What does not grow hides how the factorisation does among few bounds.
        predicted = took * (k / smaller) ** (
            solver.power if smaller >= 500 else min(solver.power, 2.0)
        )
        if predicted > min(solver.limit, left):
            return f"– (~{predicted:.0f} s)"
    times: list[float] = []
    alpha = w = np.zeros(0)
    while len(times) < REPETITIONS and (not times or times[0] < LONG):
        start = time.perf_counter()
        alpha, w = solver.solve(problem)
        times.append(time.perf_counter() - start)
    took = float(np.median(times))
    seconds[solver.name] = (k, took)
    mark = "*" if len(times) < REPETITIONS else ""
    return f"{1e3 * took:,.{1 if took < 0.1 else 0}f}{mark}  {relative_gap(problem, alpha, w):.0e}"


def relative_gap(problem: Problem, alpha: Array, w: Array) -> float:
    bundle, v, lam = problem.bundle, problem.v, problem.lam
    if not (np.isfinite(alpha).all() and np.isfinite(w).all()):
        return np.nan
    primal = 0.5 * lam * float(w @ w) + float(v @ w) + float(bundle.values(w).sum())
    return (
        primal - dual_value(bundle, v, lam, project_to_simplices(alpha, bundle))
    ) / problem.scale


# --- problems ---------------------------------------------------------------------------------------------------------


def make_problem(n_bounds: int, n_groups: int, n_weights: int, seed: int) -> Problem:
    """Tangents of the functions 1 − <c_g, w> + ½ <w, D_g w>, with diagonal D_g, at random points w."""
    rng = np.random.default_rng(seed)
    curvature = rng.exponential(size=(n_groups, n_weights))
    centre = NEAR * np.stack([direction(rng, n_weights) for _ in range(n_groups)])
    bundle = Bundle(n_weights, np.arange(n_groups))
    while len(bundle) < n_bounds:
        w = direction(rng, n_weights) * rng.uniform(
            0.7, 1.3
        )  # offsets are between 0 and 1, as losses are
        slopes = curvature * w - centre
        offsets = 1 - 0.5 * curvature @ w**2
        bundle.add(LinearBounds(sp.csr_array(slopes), offsets, slopes @ w + offsets), w)
    bundle.keep(np.arange(len(bundle)) < n_bounds)
    v = NEAR * n_groups * direction(rng, n_weights)
    scale = abs(float(bundle.values(np.zeros(n_weights)).sum()))
    known = (
        bundle.copy()
    )  # keeps inner products and α, which the problem itself must not know
    lam = choose_lam(known, v, scale)
    active = share_active(known, v, lam, TOL * scale)
    solved = known.copy()
    solved.keep(np.arange(n_bounds) < n_bounds - max(1, round(NEW * n_bounds)))
    solved.set_alpha(ascend(solved, v, lam, TOL * scale))
    return Problem(bundle, solved, v, lam, scale, active)


def direction(rng: np.random.Generator, n_weights: int) -> Array:
    """A random unit vector; among many weights a sparse one, so that the sum of two has the density wanted."""
    density = 1.0 if n_weights <= DENSE_WEIGHTS else DENSITY / 2
    vector = rng.normal(size=n_weights) * (rng.random(n_weights) < density)
    return vector / np.linalg.norm(vector)


def choose_lam(bundle: Bundle, v: Array, scale: float) -> float:
    """λ by bisection; a larger one makes fewer bounds active."""
    few = min(ACTIVE, (bundle.n_groups + 0.6 * bundle.n_features) / len(bundle))
    low, high = np.log10(bundle.n_groups) + np.log10(LAMS)
    for _ in range(8):
        middle = (low + high) / 2
        if share_active(bundle, v, 10**middle, 1e-3 * scale) > few:
            low = middle
        else:
            high = middle
    return 10 ** ((low + high) / 2)


def share_active(bundle: Bundle, v: Array, lam: float, tol: float) -> float:
    bundle.set_alpha(ascend(bundle, v, lam, tol))
    return float(np.mean(bundle.alpha > 1e-6))


# --- solvers ----------------------------------------------------------------------------------------------------------


def own_interior_point(problem: Problem) -> Solution:
    answer = solve_interior_point(
        problem.bundle, problem.v, problem.lam, TOL * problem.scale
    )
    assert answer is not None
    return answer


def ascent_cold(problem: Problem) -> Solution:
    bundle = problem.bundle.copy()
    w = solve_model_update(
        bundle, problem.v, problem.lam, "l2", np.inf, TOL * problem.scale, "ascent"
    ).w
    return bundle.alpha, w


def ascent_warm(problem: Problem) -> Solution:
    """From the α and the inner products of the bounds but the newest, as after `Bundle.add`."""
    bundle, whole = problem.solved.copy(), problem.bundle
    slopes = whole.slopes
    for k in range(len(bundle), len(whole)):
        bundle.extend(slopes[[k]], whole.offsets[[k]], whole.group[[k]])
    w = solve_model_update(
        bundle, problem.v, problem.lam, "l2", np.inf, TOL * problem.scale, "ascent"
    ).w
    return bundle.alpha, w


def clarabel_dual(problem: Problem) -> Solution:
    quadratic, linear, sums = dual_programme(problem)
    k, g = len(problem.bundle), problem.bundle.n_groups
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    settings.time_limit = 30.0
    rows = sp.csc_matrix(sp.vstack([sums, -sp.eye_array(k)]))
    cones = [clarabel.ZeroConeT(g), clarabel.NonnegativeConeT(k)]
    right = np.concatenate([np.ones(g), np.zeros(k)])
    upper = sp.csc_matrix(np.triu(quadratic))
    alpha = np.asarray(
        clarabel.DefaultSolver(upper, linear, rows, right, cones, settings).solve().x
    )
    return alpha, weights_of(problem, alpha)


def daqp_dual(problem: Problem) -> Solution:
    quadratic, linear, sums = dual_programme(problem)
    k, g = len(problem.bundle), problem.bundle.n_groups
    upper, lower = np.ones(k + g), np.concatenate([np.zeros(k), np.ones(g)])
    sense = np.concatenate([np.zeros(k), np.full(g, 5)]).astype(np.int32)
    alpha = daqp.solve(
        quadratic,
        linear,
        sums.toarray(),
        upper,
        lower,
        sense,
        primal_tol=1e-9,
        time_limit=60.0,
    )[0]
    return np.asarray(alpha), weights_of(problem, np.asarray(alpha))


def piqp_primal(problem: Problem) -> Solution:
    """Over (w, ξ), in the units in which clew gives it to Clarabel."""
    bundle, v = problem.bundle, problem.v
    d, g, k = bundle.n_features, bundle.n_groups, len(bundle)
    unit = float(np.sqrt(bundle.squared_norms().max())) or 1.0
    height = max(1.0, float(np.abs(bundle.offsets).max()))
    curvature = np.concatenate(
        [np.full(d, problem.lam / unit**2 * height), np.zeros(g)]
    )
    minus_slack = sp.csr_array(
        (-np.ones(k), (np.arange(k), bundle.group)), shape=(k, g)
    )
    rows = sp.csc_matrix(sp.hstack([bundle.slopes / unit, minus_slack]))
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-9
    quadratic = sp.csc_matrix(sp.diags_array(curvature))
    solver.setup(
        quadratic,
        np.concatenate([v / unit, np.ones(g)]),
        G=rows,
        h_u=-bundle.offsets / height,
    )
    solver.solve()
    return np.array(solver.result.z_u), np.array(solver.result.x)[:d] * (height / unit)


def dual_programme(problem: Problem) -> tuple[Array, Array, sp.csr_array]:
    """Matrix, linear term, and sums by group of min_α ½ <α, Qα> − <b − Av/λ, α>; all divided by `height`."""
    bundle, v, lam = problem.bundle, problem.v, problem.lam
    k, slopes = len(bundle), bundle.slopes
    quadratic = np.ascontiguousarray((slopes @ slopes.T).toarray()) / lam
    linear = (slopes @ v) / lam - bundle.offsets
    height = max(1.0, float(np.abs(bundle.offsets).max()))
    sums = sp.csr_array(
        (np.ones(k), (bundle.group, np.arange(k))), shape=(bundle.n_groups, k)
    )
    return quadratic / height, linear / height, sums


def weights_of(problem: Problem, alpha: Array) -> Array:
    """Eq. 15, from α on the simplices."""
    bundle = problem.bundle
    return (
        -(problem.v + bundle.combine(project_to_simplices(alpha, bundle))) / problem.lam
    )


if __name__ == "__main__":
    main()
