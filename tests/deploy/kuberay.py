"""KubeRay's schema, as far as `deploy` uses it.

Its definitions have a megabyte, and most of that is Kubernetes' pod. So a part is kept in
`kuberay.json`: of each object the fields that our files have, with their types, limits and
values, and nothing else allowed. A field that is new in `deploy` isn't known then, until this is
run again:

    python -m tests.deploy.kuberay DIR VERSION

DIR has ray.io_rayclusters.yaml and ray.io_rayjobs.yaml: it is `ray-operator/config/crd/bases` of a
checkout of KubeRay (Apache licence). With KUBERAY=DIR, tests use the whole of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.manifests import CLUSTER, JOB

KEPT: Final = Path(__file__).with_name("kuberay.json")
DOCUMENTS: Final = {"RayCluster": CLUSTER, "RayJob": JOB}

CLUSTER_OF_A_JOB: Final = {"$ref": "#/RayCluster/properties/spec"}

_FREE: Final = "x-kubernetes-preserve-unknown-fields"
_SAID: Final = ("type", "enum", "minimum", "maximum", "minItems", "pattern", "anyOf")


def definitions(folder: Path) -> dict[str, Any]:
    """KubeRay's whole schema of each kind, in which what isn't known is refused.

    Kubernetes drops such fields without a word, unless it is asked to be strict.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for kind in DOCUMENTS:
        crd = yaml.load((folder / f"ray.io_{kind.lower()}s.yaml").read_text(), loader)
        (version,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1"]
        found[kind] = _strict(version["schema"]["openAPIV3Schema"])
    return found


def part(schema: dict[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """What a schema says of some values, without what it says of others."""
    kept: dict[str, Any] = {word: schema[word] for word in _SAID if word in schema}
    if "properties" in schema:
        used = sorted({name for value in values for name in value})
        if schema.get("required"):
            kept["required"] = sorted(schema["required"])
        kept["additionalProperties"] = schema["additionalProperties"]
        kept["properties"] = {
            name: part(schema["properties"][name], [v[name] for v in values if name in v])
            for name in used
            if name in schema["properties"]
        }
    elif "additionalProperties" in schema:
        each = schema["additionalProperties"]
        kept["additionalProperties"] = part(each, []) if isinstance(each, dict) else each
    if "items" in schema:
        kept["items"] = part(schema["items"], [item for value in values for item in value])
    return kept


def parts(folder: Path) -> dict[str, Any]:
    """What `deploy` uses, of each kind; of a job's cluster, that it is one."""
    found = {kind: part(s, [DOCUMENTS[kind]]) for kind, s in definitions(folder).items()}
    job = found["RayJob"]["properties"]["spec"]["properties"]
    if job["rayClusterSpec"] == found["RayCluster"]["properties"]["spec"]:
        job["rayClusterSpec"] = CLUSTER_OF_A_JOB
    return found


def text(kept: dict[str, Any]) -> str:
    """As JSON, with what holds no other object or list on a line."""
    whole = json.dumps(kept, indent=1) + "\n"
    return re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: " ".join(found[0].split()), whole)


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {word: _strict(rest) for word, rest in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", bool(found.get(_FREE)))
    return found


if __name__ == "__main__":
    bases, kuberay = sys.argv[1:]
    KEPT.write_text(text({"kuberay": kuberay, **parts(Path(bases))}))
