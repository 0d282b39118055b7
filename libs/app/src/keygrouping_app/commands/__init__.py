"""What the command `keygrouping` has for apps: `app` and `redrive`, its entry points of `keygrouping.commands`."""
