"""How people come into their instances: SSH, the web terminal and the ports of apps.

Every way ends at the ``sshd -i`` that an engine starts inside an instance for each stream
(``Engine.open_stream``), where the gateway logs in with a key of its own. It decides who may come in, and
passes on, channel by channel, what visitors ask for: what works and how it ends is real OpenSSH's.
"""
