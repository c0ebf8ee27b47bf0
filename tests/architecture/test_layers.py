"""Who may import whom: the table of docs/architecture.md, held over the syntax trees."""

from __future__ import annotations

from tests.architecture.sources import PACKAGES, Module, imports_of, modules

# A module may import its own layer and those before it; from the edges on, never a sibling.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("clock", "errors", "statuses", "jsontext", "conf", "principals", "schemas", "db", "logs", "waypoints"),
    ("agents", "models", "answers", "policy"),
    ("nudges", "selectors", "wire", "wakes", "loop", "peers"),
    ("rows",),
    ("services",),
    ("operations", "pulse", "handover"),
    ("edge",),
    ("api", "dialects", "streaming", "tasks", "admin", "serving"),
    ("management", "apps", "checks"),
)
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}
EDGES = LAYER_OF["api"]
# What the inbox may use of the core. It reads models, as conditions of its policy, and writes through services only.
OPEN_TO_APPROVALS = {"edge", "operations", "services", "selectors", "agents", "models", "policy", "wire", *LAYERS[0]}
TRANSPORTS = ("celery", "channels", "kombu", "rest_framework", "daphne", "twisted", "django.http")
# The edges share a room of their own, which knows what they know.
MAY_KNOW_TRANSPORTS = ("nudges", "wakes", "edge")


def area_of(name: str) -> str:
    """``helix.rows.calls`` is in the area ``rows``; the bare package has none."""
    return [*name.split("."), ""][1]


def helix_imports(module: Module) -> list[tuple[str, str]]:
    """(imported area, where) for everything of the core that a module imports."""
    return [
        (area_of(name), f"{module.path.name}:{line} imports {name}")
        for name, line in imports_of(module)
        if name.startswith("helix.")
    ]


def test_every_module_of_the_core_has_a_layer() -> None:
    areas = {area_of(module.name) for module in modules("helix")} - {""}
    assert areas <= set(LAYER_OF)


def test_a_module_imports_its_own_layer_and_those_before_it() -> None:
    wrong = [
        f"{module.name}: {where}"
        for module in modules("helix")
        if (own := area_of(module.name))
        for area, where in helix_imports(module)
        if LAYER_OF.get(area, 0) > LAYER_OF.get(own, 0)
    ]
    assert wrong == []


def test_edges_do_not_import_one_another() -> None:
    wrong = [
        f"{module.name}: {where}"
        for module in modules("helix")
        if LAYER_OF.get(own := area_of(module.name), 0) >= EDGES
        for area, where in helix_imports(module)
        if area != own and LAYER_OF.get(area) == LAYER_OF[own]
    ]
    assert wrong == []


def test_services_do_not_call_each_other() -> None:
    """One verb is one transaction; a verb inside another would be two (F-3)."""
    wrong = []
    for module in modules("helix"):
        if area_of(module.name) != "services" or module.name == "helix.services":
            continue
        own = module.name.split(".")[2]
        wrong += [
            f"{module.name}:{line} imports {name}"
            for name, line in imports_of(module)
            if name.startswith("helix.services.") and name.split(".")[2] != own
        ]
    assert wrong == []


def test_the_loop_knows_no_rows() -> None:
    wrong = [
        f"{module.name}: {where}"
        for module in modules("helix")
        if area_of(module.name) == "loop"
        for area, where in helix_imports(module)
        if area in ("models", "selectors", "rows", "nudges")
    ]
    assert wrong == []


def test_only_the_edges_and_the_nudges_know_http_celery_or_channels() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in modules("helix")
        if LAYER_OF.get(own := area_of(module.name), EDGES) < EDGES and own not in MAY_KNOW_TRANSPORTS
        for name, line in imports_of(module)
        if name.split(".")[0] in TRANSPORTS or name in TRANSPORTS
    ]
    assert wrong == []


def test_one_module_knows_the_model_library() -> None:
    knowing = {
        module.name
        for module in modules(*PACKAGES)
        for name, _ in imports_of(module)
        if name.split(".")[0] == "pydantic_ai"
    }
    assert knowing <= {"helix.loop.providers"}


def test_the_core_imports_neither_the_inbox_nor_the_demonstration_nor_the_deployment() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in modules("helix", "approvals")
        for name, line in imports_of(module)
        if name.split(".")[0] in {"approvals", "config", "demo"} - {module.name.split(".")[0]}
    ]
    assert wrong == []


def test_the_inbox_uses_only_the_public_face_of_the_core() -> None:
    wrong = [
        f"{module.name}: {where}"
        for module in modules("approvals")
        for area, where in helix_imports(module)
        if area not in OPEN_TO_APPROVALS
    ]
    assert wrong == []
