"""What tests share: real servers, a misbehaving relay between client and server, real crawls."""
