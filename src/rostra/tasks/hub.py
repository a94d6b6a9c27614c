"""Datasets of the Hugging Face hub."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from rostra.errors import ConfigError, DataError
from rostra.tasks.needs import need
from rostra.tasks.rows import Row

TIMEOUT = 10.0
"""Seconds until the hub is given up. The package itself would try again for half a minute."""


def hub_rows(dataset: str, splits: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """Every row with the part or the split it is of. A dataset is written `name`, `name:config`
    where it has several, and `name@split` for one split. `splits` says which split is which part;
    by default all are read."""
    whole, _, only = dataset.partition("@")
    name, _, config = whole.partition(":")
    splits = {only: only} if only else splits
    found = _load(name, config or None)
    for split in splits.values():
        if split not in found:
            raise ConfigError(f"{name}: has no split {split!r} (there are: {', '.join(found)})")
    for part, split in splits.items() if splits else zip(found, found, strict=True):
        for number, values in enumerate(found[split], 1):
            yield part, Row(f"{name}:{split}", number, values, "row")


def _load(name: str, config: str | None) -> Mapping[str, Any]:
    datasets, hub = need("datasets"), need("huggingface_hub")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    reached = True
    try:
        hub.HfApi().dataset_info(name, timeout=TIMEOUT)
    except hub.errors.RepositoryNotFoundError:
        raise DataError(f"the hub has no dataset {name!r} that you may read") from None
    except Exception:
        reached = False
    before = datasets.config.HF_HUB_OFFLINE
    # What was loaded once is there without the hub.
    datasets.config.HF_HUB_OFFLINE = before or not reached
    try:
        found: Mapping[str, Any] = datasets.load_dataset(name, config)
    except ConnectionError:
        raise DataError(
            f"{name}: the hub cannot be reached; give a file or folder of it as task.path"
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{name}: cannot be loaded from the hub ({reason}); give a file or folder of it as "
            "task.path"
        ) from None
    finally:
        datasets.config.HF_HUB_OFFLINE = before
    return found
