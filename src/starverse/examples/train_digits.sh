#!/bin/bash
# Trains on handwritten digits, resuming by itself. Submit it from this folder:
#   sbatch --tariff spot --gres=gpu:rtx4090:2 train_digits.sh
#SBATCH --job-name=train-digits
#SBATCH --time=00:10:00
#SBATCH --output=train-digits-%j.log
#SBATCH --requeue
#SBATCH --dataset=digits

set -euo pipefail
exec "${STARVERSE_PYTHON:-python3}" train_digits.py
