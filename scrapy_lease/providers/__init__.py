"""Where proxies come from: lists, gateways, the ready-made HTTP provider, classes of users.

A provider answers ``await fetch(count)`` with a list of :class:`~.base.Proxy`. What makes a pool's resources of them,
tolerates what is wrong with them and looks whether they work is :class:`~.source.ProxySource`;
:func:`~.supplies.supply_of` builds what the settings of a pool name.
"""
