"""The annotation page: a server on this machine, a worker that learns, and the page itself in static/."""

from clew import extras

extras.require("page", "the annotation page")
