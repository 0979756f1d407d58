"""Writes src/ops/special_tables.h: coefficients of the special functions.

Each function is smooth on its interval of `u`; the table holds c[k] with f(u) = sum c[k] T_k(t),
where t runs over [-1, 1]. Temme's are those of powers (DLMF 8.12). Needs mpmath. Run:
python tools/special_tables.py && make format
"""

import pathlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
from mpmath import mp, mpf

Number = Any  # mpmath has no types
Function = Callable[[Number], Number]

mp.dps = 40
NODES = 72
# Smaller coefficients, relative to the first, are below half a unit of float64.
CUTOFF = mpf(2) ** -56


def phase_parts(order: int) -> tuple[Function, Function]:
    """Amplitudes of cosine and sine in sqrt(pi x / 2) J(x), as functions of (8 / x)^2."""

    def parts(u: Number) -> tuple[Number, Number]:
        x = 8 / mpmath.sqrt(max(u, mpf(10) ** -12))
        chi = x - mpmath.pi / 4 - order * mpmath.pi / 2
        scale = mpmath.sqrt(mpmath.pi * x / 2)
        j, y = mpmath.besselj(order, x), mpmath.bessely(order, x)
        cosine = scale * (j * mpmath.cos(chi) + y * mpmath.sin(chi))
        sine = scale * (y * mpmath.cos(chi) - j * mpmath.sin(chi))
        return cosine, sine * x / 8

    return (lambda u: parts(u)[0]), (lambda u: parts(u)[1])


def root(u: Number) -> Number:
    return mpmath.sqrt(max(u, mpf(10) ** -24))


def far(function: Function, limit: Number) -> Function:
    """sqrt(x) function(x) as a function of u = limit / x."""

    def f(u: Number) -> Number:
        x = limit / max(u, mpf(10) ** -10)
        return mpmath.sqrt(x) * function(x)

    return f


def scaled_erfc(t: Number) -> Number:
    x = mpf("3.75") * (1 + t) / (1 - t)
    if x > 2000:
        series = sum((-1) ** k * mpmath.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(6))
        return (1 + 2 * x) / (x * mpmath.sqrt(mpmath.pi)) * series
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


def i_scaled(order: int) -> Function:
    return lambda x: mpmath.exp(-x) * mpmath.besseli(order, x)


def k_scaled(order: int) -> Function:
    return lambda x: mpmath.exp(x) * mpmath.besselk(order, x)


def y_regular(order: int) -> Function:
    """Y less its logarithm (and pole), divided by x for order 1."""

    def f(u: Number) -> Number:
        x = root(u)
        log_part = mpmath.log(x) * mpmath.besselj(order, x) - (1 / x if order else 0)
        value = mpmath.bessely(order, x) - 2 / mpmath.pi * log_part
        return value / x if order else value

    return f


def airy_far(u: Number) -> Number:
    """2 sqrt(pi) x^(1/4) exp(zeta) Ai(x), where u = (1.5 / x)^(3/2)."""
    x = mpf("1.5") / max(u, mpf(10) ** -12) ** (mpf(2) / 3)
    zeta = mpf(2) / 3 * x ** mpf("1.5")
    if zeta > 1000:
        ratio = 1 / zeta
        return 1 - ratio * 5 / 72 + ratio**2 * 385 / 10368 - ratio**3 * 85085 / 2239488
    return 2 * mpmath.sqrt(mpmath.pi) * mpmath.root(x, 4) * mpmath.exp(zeta) * mpmath.airyai(x)


def airy_parts(u: Number) -> tuple[Number, Number]:
    """Amplitudes of sine and cosine in sqrt(pi) z^(1/4) Ai(-z), where u = (4 / z)^3."""
    z = 4 / max(u, mpf(10) ** -9) ** (mpf(1) / 3)
    theta = mpf(2) / 3 * z ** mpf("1.5") + mpmath.pi / 4
    scale = mpmath.sqrt(mpmath.pi) * mpmath.root(z, 4)
    ai, bi = mpmath.airyai(-z), mpmath.airybi(-z)
    sine = scale * (ai * mpmath.sin(theta) + bi * mpmath.cos(theta))
    cosine = scale * (bi * mpmath.sin(theta) - ai * mpmath.cos(theta))
    return sine, cosine * (z / 4) ** mpf("1.5")


P0, Q0 = phase_parts(0)
P1, Q1 = phase_parts(1)

# Name, what it is, function of u, interval of u.
TABLES: list[tuple[str, str, Function, Number, Number]] = [
    ("kI0Near", "exp(-x) I0(x), u = x", i_scaled(0), 0, 8),
    ("kI0Far", "sqrt(x) exp(-x) I0(x), u = 8 / x", far(i_scaled(0), 8), 0, 1),
    (
        "kI1Near",
        "exp(-x) I1(x) / x, u = x",
        lambda x: i_scaled(1)(max(x, mpf(10) ** -20)) / max(x, mpf(10) ** -20),
        0,
        8,
    ),
    ("kI1Far", "sqrt(x) exp(-x) I1(x), u = 8 / x", far(i_scaled(1), 8), 0, 1),
    (
        "kK0Near",
        "K0(x) + log(x / 2) I0(x), u = x^2",
        lambda u: mpmath.besselk(0, root(u)) + mpmath.log(root(u) / 2) * mpmath.besseli(0, root(u)),
        0,
        4,
    ),
    ("kK0Far", "sqrt(x) exp(x) K0(x), u = 2 / x", far(k_scaled(0), 2), 0, 1),
    (
        "kK1Near",
        "x (K1(x) - log(x / 2) I1(x)), u = x^2",
        lambda u: (
            root(u)
            * (mpmath.besselk(1, root(u)) - mpmath.log(root(u) / 2) * mpmath.besseli(1, root(u)))
        ),
        0,
        4,
    ),
    ("kK1Far", "sqrt(x) exp(x) K1(x), u = 2 / x", far(k_scaled(1), 2), 0, 1),
    ("kJ0Near", "J0(x), u = x^2", lambda u: mpmath.besselj(0, root(u)), 0, 64),
    ("kJ1Near", "J1(x) / x, u = x^2", lambda u: mpmath.besselj(1, root(u)) / root(u), 0, 64),
    ("kY0Near", "Y0(x) - 2/pi log(x) J0(x), u = x^2", y_regular(0), 0, 64),
    ("kY1Near", "(Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x, u = x^2", y_regular(1), 0, 64),
    ("kP0", "the cosine's amplitude of order 0, u = (8 / x)^2", P0, 0, 1),
    ("kQ0", "the sine's amplitude of order 0 times x / 8, u = (8 / x)^2", Q0, 0, 1),
    ("kP1", "the cosine's amplitude of order 1, u = (8 / x)^2", P1, 0, 1),
    ("kQ1", "the sine's amplitude of order 1 times x / 8, u = (8 / x)^2", Q1, 0, 1),
    ("kAiryNear", "Ai(x), u = x", mpmath.airyai, -4, mpf("1.5")),
    ("kAiryFar", "2 sqrt(pi) x^(1/4) exp(zeta) Ai(x), u = (1.5 / x)^(3/2)", airy_far, 0, 1),
    (
        "kAirySine",
        "the sine's amplitude in Ai(-z), u = (4 / z)^3",
        lambda u: airy_parts(u)[0],
        0,
        1,
    ),
    (
        "kAiryCosine",
        "the cosine's amplitude times (z / 4)^(3/2), u = (4 / z)^3",
        lambda u: airy_parts(u)[1],
        0,
        1,
    ),
    ("kErfcx", "(1 + 2 x) exp(x^2) erfc(x), t = (x - 3.75) / (x + 3.75)", scaled_erfc, -1, 1),
]


def chebyshev(function: Function, low: Number, high: Number) -> list[Number]:
    nodes = [mpmath.cos(mpmath.pi * (mpf(i) + 0.5) / NODES) for i in range(NODES)]
    values = [function((t + 1) / 2 * (high - low) + low) for t in nodes]
    coefficients = []
    for k in range(NODES):
        total = mpmath.fsum(
            v * mpmath.cos(mpmath.pi * k * (mpf(i) + 0.5) / NODES) for i, v in enumerate(values)
        )
        coefficients.append(total * 2 / NODES)
    coefficients[0] /= 2
    largest = max(abs(c) for c in coefficients)
    while abs(coefficients[-1]) < largest * CUTOFF:
        coefficients.pop()
    return coefficients


# Temme's expansion is used from this `a` on, for an eta up to this.
TEMME_LEAST = 1000
TEMME_MOST_ETA = 0.33
TEMME_TERMS = 40
# Of the gamma function's asymptotic series (DLMF 5.11.3).
STIRLING = [Fraction(1), Fraction(1, 12), Fraction(1, 288), Fraction(-139, 51840)]


def temme() -> list[list[Fraction]]:
    """The powers of eta in c[k], where Q(a, x) = erfc(eta sqrt(a / 2)) / 2 + exp(-a eta^2 / 2) /
    sqrt(2 pi a) sum of c[k] / a^k, and eta^2 / 2 = mu - log(1 + mu), mu = x / a - 1."""
    mu = [Fraction(0), Fraction(1)]  # of eta; from mu mu' = eta (1 + mu)
    for n in range(2, TEMME_TERMS + 1):
        known = sum((mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n)), Fraction(0))
        mu.append((mu[n - 1] - known) / (n + 1))
    inverse = [Fraction(1)]  # of mu / eta
    for n in range(1, TEMME_TERMS):
        inverse.append(-sum((mu[k + 1] * inverse[n - k] for k in range(1, n + 1)), Fraction(0)))
    # From here on by power, since they begin with negative ones.
    one_over_mu = {n - 1: value for n, value in enumerate(inverse)}
    c = {power: value - (power == -1) for power, value in one_over_mu.items()}
    found = []
    for k, stirling in enumerate(STIRLING):
        if k > 0:
            c = {power - 2: power * value for power, value in c.items()}
            for power, value in one_over_mu.items():
                c[power] = c.get(power, Fraction(0)) + (-1) ** k * stirling * value
        assert not any(value for power, value in c.items() if power < 0)
        found.append([c[n] for n in range(TEMME_TERMS // 2)])
    return found


def seen(coefficients: Sequence[Fraction], k: int) -> list[Number]:
    """Those that float64 sees."""
    sizes = [abs(c) * TEMME_MOST_ETA**n / TEMME_LEAST**k for n, c in enumerate(coefficients)]
    number = max(n + 1 for n, size in enumerate(sizes) if size > CUTOFF)
    return [mpf(c.numerator) / c.denominator for c in coefficients[:number]]


def table(name: str, meaning: str, coefficients: Sequence[Number]) -> list[str]:
    numbers = [mpmath.nstr(c, 18, min_fixed=0, max_fixed=0) for c in coefficients]
    return [
        f"// {meaning}",
        f"inline constexpr double {name}[] = {{",
        *("    " + ", ".join(numbers[i : i + 3]) + "," for i in range(0, len(numbers), 3)),
        "};",
        "",
    ]


def main() -> None:
    lines = [
        "// Coefficients of the special functions, written by tools/special_tables.py.",
        "#pragma once",
        "",
        "namespace torch_xla::ops {",
        "",
    ]
    for name, meaning, function, low, high in TABLES:
        lines += table(name, meaning, chebyshev(function, low, high))
    for k, coefficients in enumerate(temme()):
        meaning = f"c[{k}] of Temme's expansion, by powers of eta"
        lines += table(f"kTemme{k}", meaning, seen(coefficients, k))
    lines += ["}  // namespace torch_xla::ops", ""]
    path = pathlib.Path(__file__).parent.parent / "src" / "ops" / "special_tables.h"
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
