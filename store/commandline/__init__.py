"""What the commands of all rooms share: members, options, output."""
