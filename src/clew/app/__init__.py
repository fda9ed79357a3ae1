"""The annotation page: a server on this machine, a worker that learns, and the page itself in static/."""

from clew.utils import extras

extras.require("page", "the annotation page")
