-- Where the lake was moved, or from where it is being moved here.
SELECT move FROM {schema}.flywheel_move
