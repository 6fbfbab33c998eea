"""torch.distributions: what each family draws, how likely that is, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributions as D
from torch_cases import case

X = torch.rand(2, 3) * 0.3 + 0.1
P = torch.softmax(X, -1)
EYE = torch.eye(2)

FAMILIES: dict[str, Callable[[Any], Any]] = {
    "normal": lambda x: D.Normal(x, x + 1),
    "bernoulli": lambda x: D.Bernoulli(probs=x),
    "beta": lambda x: D.Beta(x, x + 1),
    "categorical": lambda x: D.Categorical(logits=x),
    "categorical_of_probabilities": lambda x: D.Categorical(probs=P),
    "cauchy": lambda x: D.Cauchy(x, x + 1),
    "chi2": D.Chi2,
    "continuous_bernoulli": D.ContinuousBernoulli,
    "dirichlet": D.Dirichlet,
    "exponential": D.Exponential,
    "fisher_snedecor": lambda x: D.FisherSnedecor(x, x + 1),
    "gamma": lambda x: D.Gamma(x, x + 1),
    "geometric": D.Geometric,
    "gumbel": lambda x: D.Gumbel(x, x + 1),
    "half_cauchy": D.HalfCauchy,
    "half_normal": D.HalfNormal,
    "independent": lambda x: D.Independent(D.Normal(x, 1.0), 1),
    "inverse_gamma": lambda x: D.InverseGamma(x, x + 1),
    "kumaraswamy": lambda x: D.Kumaraswamy(x, x + 1),
    "laplace": lambda x: D.Laplace(x, x + 1),
    "lkj_cholesky": lambda x: D.LKJCholesky(3, 0.5),
    "log_normal": lambda x: D.LogNormal(x, x + 1),
    "logistic_normal": lambda x: D.LogisticNormal(x, x + 1),
    "low_rank": lambda x: D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
    "multinomial": lambda x: D.Multinomial(5, probs=P),
    "multivariate_normal": lambda x: D.MultivariateNormal(torch.zeros(2), EYE),
    "of_a_precision": lambda x: D.MultivariateNormal(torch.zeros(2), precision_matrix=EYE),
    "negative_binomial": lambda x: D.NegativeBinomial(5.0, probs=x),
    "one_hot": lambda x: D.OneHotCategorical(logits=x),
    "one_hot_straight_through": lambda x: D.OneHotCategoricalStraightThrough(logits=x),
    "pareto": lambda x: D.Pareto(x, x + 1),
    "poisson": D.Poisson,
    "relaxed_bernoulli": lambda x: D.RelaxedBernoulli(torch.tensor(0.5), logits=x),
    "relaxed_one_hot": lambda x: D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x),
    "transformed": lambda x: D.TransformedDistribution(D.Normal(x, 1.0), [D.SigmoidTransform()]),
    "uniform": lambda x: D.Uniform(x, x + 1),
    "weibull": lambda x: D.Weibull(x, x + 1),
}
PAIRS: dict[str, Callable[[Any], Any]] = {
    "normals": lambda x: (D.Normal(x, 1.0), D.Normal(0.0, x)),
    "betas": lambda x: (D.Beta(x, x), D.Beta(x + 1, x)),
    "categoricals": lambda x: (D.Categorical(logits=x), D.Categorical(logits=-x)),
    "gammas": lambda x: (D.Gamma(x, x), D.Gamma(x + 1, x)),
    "dirichlets": lambda x: (D.Dirichlet(x), D.Dirichlet(x + 1)),
    "independents": lambda x: (D.Independent(D.Normal(x, 1.0), 1), D.Independent(D.Normal(0 * x, 1.0), 1)),
    "of_several_variables": lambda x: (D.MultivariateNormal(torch.zeros(2), EYE), D.MultivariateNormal(X[:, 0], EYE)),
    "uniforms": lambda x: (D.Uniform(x, x + 1), D.Uniform(x - 1, x + 2)),
    "bernoullis": lambda x: (D.Bernoulli(logits=x), D.Bernoulli(logits=-x)),
    "laplaces": lambda x: (D.Laplace(x, 1.0), D.Laplace(0.0, x)),
}


def asked(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fn(x):
        d = make(x)
        drawn = d.rsample() if d.has_rsample else d.sample()
        return drawn, d.log_prob(drawn), d.batch_shape, d.event_shape, torch.rand(1)

    return fn


def entropy(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fn(x):
        d = make(x)
        try:
            return d.entropy()
        except NotImplementedError as error:
            return x, str(error)

    return fn


def divergence(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fn(x):
        return D.kl_divergence(*make(x))

    return fn


def rows(table: dict[str, Callable[[Any], Any]], kind: Callable[..., Any]) -> None:
    """A row for each, with code of its own."""
    for name, make in table.items():
        fn: Any = kind(make)
        fn.__name__ = f"{kind.__name__}_{name}"
        fn.__code__ = fn.__code__.replace(co_name=fn.__name__)
        case(X)(fn)


rows(FAMILIES, asked)
rows({name: make for name, make in FAMILIES.items() if name in ("normal", "beta", "dirichlet", "poisson")}, entropy)
rows(PAIRS, divergence)


@case(X)
def without_checks(x):
    d = D.Normal(x, 1.0, validate_args=False)
    return d.log_prob(x), d.expand((2, 2, 3)).sample(), d.cdf(x), d.icdf(x), d.mean, d.variance


@case(X)
def constraints(x):
    c = D.constraints
    return c.positive.check(x), D.biject_to(c.positive)(x), D.transform_to(c.simplex)(x)
