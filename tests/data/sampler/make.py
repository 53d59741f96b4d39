#!/usr/bin/env python3
"""What diffusers' schedulers make of given predictions, and torch's normal numbers: cases.json and golden.safetensors.

    python make.py OUT          (torch, diffusers, safetensors, scipy)
"""
import json, sys
from pathlib import Path
import torch
import diffusers
from safetensors.torch import save_file

ELEMENTS = 12
UNIPC, DPM, FLOW, EULER = "UniPCMultistepScheduler", "DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler", "EulerDiscreteScheduler"
WAN = dict(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def cases():
    for steps in (1, 2, 3, 5, 20, 50):
        yield f"unipc-wan-{steps}", UNIPC, steps, WAN
    for shift in (1.0, 5.0, 12.0):
        yield f"unipc-shift-{shift:g}", UNIPC, 7, dict(WAN, flow_shift=shift)
    for order in (1, 2, 3):
        for solver in ("bh1", "bh2"):
            for last in ("zero", "sigma_min"):
                if (solver, last) != ("bh1", "zero"):  # diffusers divides by zero there
                    yield f"unipc-{order}-{solver}-{last}", UNIPC, 6, dict(WAN, solver_order=order, solver_type=solver, final_sigmas_type=last)
    yield "unipc-uncorrected", UNIPC, 8, dict(WAN, disable_corrector=[0, 3])
    yield "unipc-full-order", UNIPC, 6, dict(WAN, lower_order_final=False, final_sigmas_type="sigma_min")
    yield "unipc-terminal", UNIPC, 6, dict(WAN, shift_terminal=0.1)
    yield "unipc-karras-flow", UNIPC, 6, dict(WAN, use_karras_sigmas=True)
    for kind in ("epsilon", "v_prediction", "sample"):
        for of_data in (True, False):
            yield f"unipc-{kind}-{of_data}", UNIPC, 8, dict(prediction_type=kind, predict_x0=of_data, final_sigmas_type="sigma_min")
    for spacing in ("linspace", "leading", "trailing"):
        yield f"unipc-{spacing}", UNIPC, 7, dict(timestep_spacing=spacing, steps_offset=1 if spacing == "leading" else 0, beta_schedule="scaled_linear")
        yield f"dpm-{spacing}", DPM, 7, dict(timestep_spacing=spacing, steps_offset=1 if spacing == "leading" else 0, beta_schedule="squaredcos_cap_v2", lambda_min_clipped=-5.1)
        yield f"euler-{spacing}", EULER, 7, dict(timestep_spacing=spacing, beta_schedule="scaled_linear")
    yield "unipc-karras", UNIPC, 6, dict(use_karras_sigmas=True)
    yield "unipc-exponential", UNIPC, 6, dict(use_exponential_sigmas=True, sigma_min=0.1, sigma_max=80.0)
    for order in (1, 2, 3):
        for solver in ("midpoint", "heun"):
            for steps in (5, 20):
                yield f"dpm-{order}-{solver}-{steps}", DPM, steps, dict(solver_order=order, solver_type=solver)
                yield f"dpm-flow-{order}-{solver}-{steps}", DPM, steps, dict(WAN, solver_order=order, solver_type=solver)
    yield "dpm-flow-sigma-min", DPM, 16, dict(WAN, solver_order=3, final_sigmas_type="sigma_min")
    yield "dpm-euler-at-final", DPM, 16, dict(euler_at_final=True, final_sigmas_type="sigma_min", lower_order_final=False)
    yield "dpm-karras", DPM, 6, dict(use_karras_sigmas=True, prediction_type="v_prediction")
    yield "dpm-exponential", DPM, 6, dict(use_exponential_sigmas=True)
    for steps in (1, 2, 6, 28):
        yield f"flow-{steps}", FLOW, steps, dict(shift=3.0)
    yield "flow-plain", FLOW, 5, {}
    yield "flow-terminal", FLOW, 5, dict(shift=2.0, shift_terminal=0.1)
    yield "flow-inverted", FLOW, 5, dict(invert_sigmas=True)
    yield "flow-karras", FLOW, 5, dict(use_karras_sigmas=True)
    yield "flow-exponential", FLOW, 5, dict(use_exponential_sigmas=True)
    for kind in ("v_prediction", "sample"):
        yield f"euler-{kind}", EULER, 6, dict(prediction_type=kind)
    yield "euler-log-linear", EULER, 6, dict(interpolation_type="log_linear")
    yield "euler-karras", EULER, 6, dict(use_karras_sigmas=True)
    yield "euler-sigma-min", EULER, 6, dict(final_sigmas_type="sigma_min")


def main(out):
    arrays, about = {}, {}
    for name, kind, steps, settings in cases():
        scheduler = getattr(diffusers, kind)(**settings)
        config = dict(scheduler.config, _class_name=kind, _diffusers_version=diffusers.__version__)
        config = {k: "-Infinity" if v == -float("inf") else v for k, v in config.items()}
        scheduler.set_timesteps(steps)
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(0)
        generator = torch.Generator().manual_seed(len(about))
        start = torch.randn(1, ELEMENTS, 1, 1, generator=generator)
        latent = start * getattr(scheduler, "init_noise_sigma", 1.0)
        predictions, latents, inputs = [], [], []
        for t in scheduler.timesteps:
            if hasattr(scheduler, "scale_model_input"):
                inputs.append(scheduler.scale_model_input(latent, t).flatten())
            predictions.append(torch.randn(latent.shape, generator=generator))
            latent = scheduler.step(predictions[-1], t, latent, return_dict=False)[0]
            latents.append(latent)
        assert all(torch.isfinite(x).all() for x in latents), name
        about[name] = dict(config=config, steps=steps)
        arrays[f"{name}.start"] = start.flatten()
        arrays[f"{name}.predictions"] = torch.stack(predictions).reshape(len(predictions), -1)
        arrays[f"{name}.latents"] = torch.stack(latents).reshape(len(latents), -1)
        arrays[f"{name}.timesteps"] = torch.as_tensor(scheduler.timesteps).float()
        arrays[f"{name}.sigmas"] = torch.as_tensor(scheduler.sigmas).float()
        if inputs:
            arrays[f"{name}.inputs"] = torch.stack(inputs)
    for seed in (0, 1, 42, 2**32 + 42, 123456789012):
        for size in (1, 2, 7, 15, 16, 17, 31, 32, 33, 1000, 3077):
            arrays[f"randn.{seed}.{size}"] = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    out.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in arrays.items()}, out / "golden.safetensors")
    (out / "cases.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
