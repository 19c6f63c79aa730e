"""What people are told: of decisions (`explain`), of waiting jobs (`why`), in `web` and `top`."""
