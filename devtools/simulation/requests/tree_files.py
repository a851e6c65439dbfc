"""Files of the tenant tree as administrators write them: limits that move between tenants, new projects with all they may
have, roles, and files that cannot be applied. JSON is YAML, so a file is written as such.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from devtools.simulation.setting.stage import CLUSTERS, GPU_LIMIT

Entry = dict[str, Any]
PROJECT = "probe"
OTHER_ORGANISATION = "globex"
EVERY_RESOURCE = ("gpu", "gpu:H100-80GB", "cpu", "memory", "jobs")
AMOUNTS = {"gpu": ("0", "0.5", "4", "9000m", str(GPU_LIMIT)), "cpu": ("0", "2500m", "8"), "memory": ("512Mi", "4Gi", "2Ti"),
           "jobs": ("0", "1", "3", "50")}  # fmt: skip
BAD_AMOUNTS = ("-1", "much", "0.0001", "9" * 17, "1.5Ki", "1e9")
STORY = "story"
BARE: Entry = {
    "labels": {},
    "weight": "1",
    "limits": [],
    "user_limits": [],
    "class_limits": [],
    "submission_limit": None,
    "budgets": [],
    "roles": [],
}
"""Sections that say that there is nothing."""
BUDGETS: tuple[Entry, ...] = (
    {"amount": "40", "currency": "USD", "period": "month", "stops_admission": True},
    {"gpu_hours": "0.25", "period": "year", "notify_at": [50, 90]},
    {"amount": "7.5", "currency": "USD", "period": "dates", "starts_on": "2026-06-01", "ends_on": "2026-06-30"},
    {"amount": "5", "currency": "EUR", "period": "quarter"},
)
"""The last one is refused: prices are in another currency."""


class Author:
    """Writes files about the tenants that there are: departments by path, each with the paths of its teams."""

    def __init__(self, chance: random.Random, places: Mapping[str, Sequence[str]]) -> None:
        self._chance = chance
        self._places = {path: list(teams) for path, teams in places.items()}

    def draft(self) -> tuple[str, bool]:
        """A file that may be applied, or refused for a reason; and whether tenants that it lacks are removed."""
        kinds: tuple[Callable[[], list[Entry]], ...] = (
            self._limits, self._limits, self._project, self._project, self._roles, self._strangers, self._other, self._nothing,
        )  # fmt: skip
        write = self._chance.choice(kinds)
        file: Entry = {"apiVersion": "switchyard/v1", "kind": "TenantTree", "tenants": write()}
        if write == self._other and self._chance.random() < 0.5:
            file["priority_classes"] = [{"name": "rush", "value": self._chance.randrange(90), "is_open": True}]
            if self._chance.random() < 0.5:
                del file["tenants"]
        return json.dumps(file, indent=1), write == self._nothing

    def faulty(self) -> str:
        """A file with a fault that has a place in it."""
        path = next(iter(self._places))
        resource = self._chance.choice(EVERY_RESOURCE)
        wrong: tuple[Entry, ...] = (
            {"limits": [{"resource": "memory", "nominal": self._chance.choice(BAD_AMOUNTS)}]},
            {"limits": [{"resource": resource, "nominal": self._chance.choice(BAD_AMOUNTS)}]},
            {"user_limits": [{"resource": "luck", "most": "1"}]},
            {"labels": {"no spaces": "a b"}},
            {"weight": "0"},
        )
        file = {"apiVersion": "switchyard/v1", "kind": "TenantTree"}
        tenants = [{"path": path, "kind": "department", **self._chance.choice(wrong)}]
        text = json.dumps(file | {"tenants": tenants})
        return self._chance.choice((text, text, text, "tenants: [", "apiVersion: other/v9\n"))

    def story(self) -> list[tuple[str, bool]]:
        """A project that gets all it may have, other roles, then nothing of it, and is removed: files, as `draft` returns them."""
        team = self._team()
        role = {"user": f"{self._user()}@acme.example", "role": "viewer"}
        full: Entry = {
            "labels": {"a": "b"}, "weight": "2", "limits": self._forms(["cpu"]), "user_limits": [{"resource": "jobs", "most": "9"}],
            "class_limits": [{"priority_class": "low", "resource": "jobs", "most": "9"}],
            "submission_limit": {"most_waiting": 90}, "budgets": [BUDGETS[0]], "roles": [role],
        }  # fmt: skip
        changed = full | {
            "roles": [role | {"expires_at": "2027-01-01T00:00:00Z"}],
            "submission_limit": {"most_waiting": 80},
        }
        tenants = [[self._tenant(f"{team}/{STORY}", "project", **sections)] for sections in (full, changed, BARE)]
        files = [{"apiVersion": "switchyard/v1", "kind": "TenantTree", "tenants": found} for found in tenants]
        files.append(files[0] | {"tenants": [self._tenant(team, "team")]})
        return [(json.dumps(file, indent=1), number == len(files) - 1) for number, file in enumerate(files)]

    def edited(self, text: str) -> str:
        """An exported file in which some amounts of limits are others."""

        def other(found: re.Match[str]) -> str:
            amounts = AMOUNTS["jobs"] if self._chance.random() < 0.5 else (found[2],)
            return f"{found[1]}{self._chance.choice(amounts)}"

        return re.sub(r"""((?:nominal|most): ['"]?)([0-9]+)(?![0-9.a-zA-Z])""", other, text)

    # -- kinds of files ---------------------------------------------------------------------------------------------

    def _limits(self) -> list[Entry]:
        """Limits along the tree, of any form: what they guarantee may be more than there is, or move between teams."""
        department = self._department()
        resources = self._chance.sample(EVERY_RESOURCE, self._chance.choice((1, 2)))
        found = (
            [self._tenant("acme", "organisation", limits=self._forms(["gpu"], is_root=True))] if self._often() else []
        )
        found.append(self._tenant(department, "department", **self._some_limits(resources)))
        found += [self._tenant(team, "team", **self._some_limits(resources)) for team in self._places[department]]
        return found

    def _project(self) -> list[Entry]:
        """A project of a team, with all that a tenant may have, or without what it had."""
        team = self._team()
        if self._often():
            sections: Entry = {
                "labels": {"cost-centre": str(self._chance.randrange(99))},
                "weight": self._chance.choice(("0.5", "2", "1")),
                **self._some_limits(EVERY_RESOURCE[:2]),
                "budgets": self._chance.sample(BUDGETS, self._chance.choice((1, 1, 2))),
                "invoice_terms": {
                    "cost_centre": f"R-{self._chance.randrange(9)}",
                    "tax_rate": self._chance.choice((None, "19")),
                },
                "roles": [{"user": f"{self._user()}@acme.example", "role": self._chance.choice(("viewer", "manager"))}],
            }
        else:
            sections = BARE
        return [self._tenant(f"{team}/{PROJECT}", "project", **sections)]

    def _roles(self) -> list[Entry]:
        """Roles at a team; or those of the organisation without its last administrator, or without one of two."""
        if self._often():
            ends = self._chance.choice((None, "2027-01-01T00:00:00Z"))
            users = self._chance.sample(("ada", "ben"), self._chance.choice((0, 1, 2)))
            roles = [{"user": f"{name}@acme.example", "role": "manager", "expires_at": ends} for name in users]
            return [self._tenant(self._team(), "team", roles=roles)]
        kept = [{"user": "ben@acme.example", "role": "admin"}] if self._often() else []
        return [self._tenant("acme", "organisation", roles=kept)]

    def _strangers(self) -> list[Entry]:
        """Tenants that cannot be: below one that does not exist, or that exist with another kind."""
        team = self._team()
        return self._chance.choice((
            [self._tenant("acme/nowhere/deep", "team", labels={"a": "b"})],
            [self._tenant("nowhere/deep", "team", weight="2"), self._tenant("nowhere/deep/er", "project")],
            [self._tenant(team, "department", limits=self._forms(["cpu"]))],
            [self._tenant(team, "team", roles=[{"user": "nobody@acme.example", "role": "viewer"}])],
        ))  # fmt: skip

    def _other(self) -> list[Entry]:
        """Another organisation with a team, which only operators may make."""
        return [
            self._tenant(
                OTHER_ORGANISATION,
                "organisation",
                limits=self._forms(["gpu"], is_root=True),
                budgets=[{"amount": "9", "currency": self._chance.choice(("USD", "EUR")), "period": "month"}],
            ),
            self._tenant(f"{OTHER_ORGANISATION}/ops", "team", **self._some_limits(["gpu"])),
        ]

    def _nothing(self) -> list[Entry]:
        """A team, or a department, without what is below it: that goes, unless it is in use."""
        if self._often():
            return [self._tenant(self._team(), "team")]
        return [self._tenant(self._department(), "department")]

    # -- parts ------------------------------------------------------------------------------------------------------

    def _tenant(self, path: str, kind: str, **sections: Any) -> Entry:
        return {"path": path, "kind": kind, **sections}

    def _some_limits(self, resources: Sequence[str]) -> Entry:
        found: Entry = {"limits": self._forms(resources) if self._often() else []}
        if self._chance.random() < 0.4:
            resource = self._chance.choice(("jobs", "gpu"))
            found["user_limits"] = [{"resource": resource, "most": self._amount(resource)}] if self._often() else []
        if self._chance.random() < 0.4:
            resource, name = self._chance.choice(("jobs", "gpu")), self._chance.choice(("normal", "low", "none-such"))
            of_class = {"priority_class": name, "resource": resource, "most": self._amount(resource)}
            found["class_limits"] = [of_class] if self._often() else []
        if self._chance.random() < 0.4:
            limit = {
                "most_waiting": self._chance.choice((0, 2, 90)),
                "jobs_per_minute": self._chance.choice((None, 1, 60)),
            }
            found["submission_limit"] = limit if self._often() else None
        return found

    def _forms(self, resources: Sequence[str], *, is_root: bool = False) -> list[Entry]:
        found = []
        for resource in resources:
            limit: Entry = {"resource": resource, "nominal": self._amount(resource)}
            if not is_root:
                limit["borrowing_limit"] = self._chance.choice((None, self._amount(resource)))
                limit["lending_limit"] = self._chance.choice((None, None, self._amount(resource)))
                limit["reclaims"] = self._chance.random() < 0.3
                limit["reclaim_after"] = self._chance.choice((None, None, 0, 20))
            if self._chance.random() < 0.2:
                limit["clusters"] = self._chance.choice(([CLUSTERS[0]], list(CLUSTERS), ["nowhere"]))
            found.append(limit)
        return found

    def _amount(self, resource: str) -> str:
        return self._chance.choice(AMOUNTS[resource.partition(":")[0]])

    def _often(self) -> bool:
        return self._chance.random() < 0.6

    def _user(self) -> str:
        return self._chance.choice(("ada", "ben"))

    def _department(self) -> str:
        return self._chance.choice(sorted(self._places))

    def _team(self) -> str:
        return self._chance.choice(sorted(team for teams in self._places.values() for team in teams))
