"""The worlds as environments of other libraries.

game             a team's episodes as pure functions: what all of them are made of
pettingzoo_env   a PettingZoo parallel environment
gymnasium_env    a team as one agent: a Gymnasium environment, and many teams as a vector environment
jaxmarl_env      a JaxMARL environment
"""
