"""SMAClite's battles, built anew in JAX: every rule of the original engine, one battle as pure functions.

units, terrain, maps    the data
scenario                one map laid out as arrays
vectors                 points of the plane, component by component
targeting               who wants to shoot at whom, and where everybody wants to go
avoidance               how everybody gets there without walking through anybody (ORCA)
combat                  moving, shooting, healing, dying, one unit after the other
observe                 legal actions, observations, the state vector
battle                  the state, the start, one step
replay                  the recorded episodes of the original, as a referee
scripted                teams that follow a rule, to measure with
world                   a map as a world to learn in
stepped                 one battle as an object that keeps its state
gymnasium_env           the original's own interface
picture                 a battle as a picture
"""
