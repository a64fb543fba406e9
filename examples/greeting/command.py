from hsparse.api import add_tree_arguments


def add_arguments(parser, command):
    add_tree_arguments(parser, "Have the server say hello.", greet)


def greet(args, tree, output):
    greeting = tree.json("GET", "/greeting")
    for word, name in greeting.items():
        output.write(f"{word} {name}", greeting)
