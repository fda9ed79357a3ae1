"""The annotation page: a server on this machine, a worker that learns, and the page itself in static/."""

from clew.utils.extras import require_extra

require_extra("page", "the annotation page")
