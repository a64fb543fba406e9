from greeting.settings import GreetingSettings
from hsparse.api import AccessPolicy, Parts, Route, respond


async def get_greeting(request):
    word = request.service.section(GreetingSettings).greeting_word
    return respond({word: request.principal.name})


class Politeness:
    def applies(self, route):
        return route.method == "DELETE"

    async def __call__(self, request, next):
        request.headers["X-Thanks"] = request.principal.name
        return await next(request)


def parts(settings, clock):
    return Parts((Route("GET", "/greeting", get_greeting, None),), ((AccessPolicy, Politeness()),))
