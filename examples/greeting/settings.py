from dataclasses import dataclass

from hsparse.api import setting


@dataclass(frozen=True)
class GreetingSettings:
    greeting_word: str = setting("hello", "word of the greeting", group="Greeting")


SECTION = GreetingSettings
