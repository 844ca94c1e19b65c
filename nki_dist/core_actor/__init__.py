"""All that is Ray: the actor of a core, who runs where, how processes talk."""
