"""An extension of a server: a route, a policy and a command.

A package that has this names it in its `pyproject.toml`:

    [project.entry-points."hsparse.extensions"]
    greeting = "extension:EXTENSION"
"""

from aiohttp import web

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule
from hsparse.sn.app import Parts
from hsparse.sn.policies.access import Access
from hsparse.sn.route import Route

EXTENSION = Extension({"greet": Command("extension", help="say hello")}, OptionalModule("extension"))


async def get_greeting(request):
    return web.json_response({"hello": request.principal.name})


class Politeness:
    def applies(self, route):
        return route.method == "DELETE"

    async def __call__(self, request, next):
        answer = await next(request)
        answer.headers["X-Thanks"] = request.principal.name
        return answer


def parts(settings, clock):
    return Parts((Route("GET", "/greeting", get_greeting, None),), ((Access, Politeness()),))


def add_arguments(parser, command):
    parser.set_defaults(run=lambda args: print("hello"))
