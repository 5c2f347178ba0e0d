"""`python -m diamond_attention` is `diamond`."""

from diamond_attention.command_line import main

if __name__ == "__main__":
    main()
