"""A program for another Python: says as JSON what vLLM it has and what that can compute on. Its text is given to
`PYTHON -c`, so it needs the standard library alone."""

import importlib
import importlib.util
import json
from importlib import metadata


def look() -> dict[str, object]:
    """Nothing without vLLM; else `distribution` and `version`, and `error` or: `device` (`cuda`, `cpu`, …; empty when
    vLLM finds nothing to compute on), `devices` how many (null: unknown), `variable` that chooses among them."""
    if importlib.util.find_spec("vllm") is None:
        return {}
    names = sorted(metadata.packages_distributions().get("vllm", []))
    distribution = "vllm" if "vllm" in names else names[0] if names else ""
    found: dict[str, object] = {
        "distribution": distribution,
        "version": metadata.version(distribution) if distribution else "",
    }
    try:
        platform = importlib.import_module("vllm.platforms").current_platform
        device = str(platform.device_type or "")
        found |= {"device": device, "variable": str(platform.device_control_env_var), "devices": None}
        if device not in ("", "cpu") and hasattr(platform, "device_count"):
            found["devices"] = int(platform.device_count())
    except Exception as error:  # noqa: BLE001
        # Whatever a broken installation raises: whoever asked tells it to people.
        lines = [each for each in str(error).splitlines() if each.strip()]
        found["error"] = f"{type(error).__name__}: {lines[0].strip() if lines else ''}"
    return found


if __name__ == "__main__":
    print(json.dumps(look()))
