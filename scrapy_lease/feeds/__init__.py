"""Feeds: lists, sets and sorted sets of the user's in Redis, from which sessions take what they fetch first.

The way of an entry::

    the user's feed --take--> taken by session S as id --requests made, pushed--> in the backlog --settle--> gone
          ^                       |        |
          '---- S leaves ---------'        '---- no request can be made of it ----> failed (a list beside the feed)

An entry leaves the feed for the hash of the session in one script, and that hash only when the lease store has answered
the push of every request made of it. Feed and store may be two servers; nothing relies on both at once:

==============================  ==============================================================================
killed, or the reply is lost    what happens
==============================  ==============================================================================
before the take                 the entry is in the feed
after the take                  it is in the hash of S. S looks there when the server counts more than S knows of,
                                others when the lease store says that S is over; each makes its requests again
after a push was accepted       the same, and the same id gives the same item keys: the push is a duplicate
after the settle                it is in the backlog, whose promises hold; a repeated settle finds it gone
S is slow and not dead          S and who took over push the same keys; one is accepted, both may settle
S leaves in order               all that was pushed is settled before its session closes, and what nobody can have from
                                the account goes back: entries of which no request has arrived
==============================  ==============================================================================

The item key of a request with dont_filter, which is how feeds make them, comes from the entry's id and the request's
place within it, and its mark counts for this run. So an entry is fetched once however often it is taken over, and a URL
that is fed twice is fetched twice. A request with a key of its own, or without dont_filter, is an item like any other.

A crawl that becomes idle leaves only when no other session has entries on its account. So the one that takes over from
a dead session is of the same run, in which the marks count.

What this cannot do: know of takes and settlements that a feed's server acknowledged and lost (SIGKILL with
``appendfsync everysec``, rarely). Their entries are in the feed again, or again in the hash, and are fetched twice, or
once more by the next run.
"""
