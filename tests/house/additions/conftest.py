import io
import json

import pytest
from django.core.management import call_command


@pytest.fixture(scope="session")
def shapes():
    """The shapes of the OpenAPI description, by name."""
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    return json.loads(out.getvalue())["components"]["schemas"]
