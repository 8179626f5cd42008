"""Parts that trainers share: supervised steps, GRPO, its prompts and rewards."""
