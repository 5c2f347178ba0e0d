"""The `diamond` command, and `python -m diamond_attention`.

A robot's process must start quickly and has no JAX, so it is told apart before anything else is imported.
"""

import sys


def main() -> None:
    if sys.argv[1:2] == ["agent"]:
        from diamond_attention.errors import UserError
        from diamond_attention.robot.command import agent_command
        from diamond_attention.terminal import tell

        try:
            status = agent_command(sys.argv[2:])
        except UserError as error:
            tell(error)
            status = 2
        sys.exit(status)
    try:
        from diamond_attention.command_line import main as everything
    except ModuleNotFoundError as error:
        if error.name != "diamond_attention.command_line":
            raise
        sys.exit("diamond: this is the install for robots, which has `diamond agent` alone.")
    everything()


if __name__ == "__main__":
    main()
