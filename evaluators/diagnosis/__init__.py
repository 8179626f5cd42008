"""Why a kernel takes the time that it takes: profiles, and NVIDIA's own tools."""
