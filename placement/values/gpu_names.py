"""GPU model names as users write them: `H100` means every model whose name begins with it, such as `H100-80GB`."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_NEAREST = 3
LEAST_LIKENESS = 0.5


def means(name: str, model: str) -> bool:
    """Whether `name`, as a user writes it, means this model.

    >>> means("H100", "H100-80GB"), means("h100-80gb", "H100-80GB"), means("L4", "L40S")
    (True, True, False)
    """
    written, whole = name.casefold(), model.casefold()
    return whole == written or whole.startswith(f"{written}-")


def models_meant(name: str, known: Iterable[str]) -> list[str]:
    """The known models that a name means, sorted."""
    return sorted(model for model in set(known) if means(name, model))


def nearest_models(name: str, known: Iterable[str]) -> list[str]:
    """The known models whose names are most similar to an unknown name, the most similar first.

    >>> nearest_models("H10O", ["A100-80GB", "H100-80GB", "L4"])
    ['H100-80GB', 'A100-80GB']
    """
    short: dict[str, str] = {}
    for model in sorted(set(known)):
        short.setdefault(model.casefold(), model)
        short.setdefault(model.casefold().partition("-")[0], model)
    alike = get_close_matches(name.casefold(), short, MOST_NEAREST, LEAST_LIKENESS)
    return list(dict.fromkeys(short[text] for text in alike))
