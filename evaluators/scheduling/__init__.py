"""Who judges when: locks between judges of one machine."""
