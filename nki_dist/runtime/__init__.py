"""Running linked programs on simulated cores, in any process.

It binds programs to arrays, drives cores as coroutines, carries messages between them, finds races
and deadlocks. Knows no Ray: `hosts` says what a host has to do.
"""
