import io

import pytest
import yaml
from django.core.management import call_command


@pytest.fixture(scope="session")
def shapes():
    """The shapes of the OpenAPI description, by name."""
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())["components"]["schemas"]
