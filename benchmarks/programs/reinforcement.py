"""Agents: policies whose episodes have any length, returns in lists, and a library's own loop."""

import numpy as np
import torch
import torch.nn.functional as F
from programs import program, weights
from torch import nn


@program()
def reinforce(seed, compile):
    """As PyTorch's example: an episode with a graph over all of its steps, returns with a running baseline."""
    import gymnasium as gym
    from torch.distributions import Categorical

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.second = nn.Linear(4, 16), nn.Dropout(0.3), nn.Linear(16, 2)
            self.saved, self.rewards = [], []

        def forward(self, x):
            return F.softmax(self.second(F.relu(self.drop(self.first(x)))), dim=1)

    environment, policy = gym.make("CartPole-v1"), Policy()
    optimizer, running = torch.optim.Adam(policy.parameters(), 1e-2), [10.0]
    environment.reset(seed=seed)

    def choose(state):
        odds = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
        action = odds.sample()
        policy.saved.append(odds.log_prob(action))
        return action.item()

    def step(episode):
        state, total = environment.reset()[0], 0.0
        for _ in range(60):
            state, reward, done, _, _ = environment.step(choose(state))
            policy.rewards.append(float(reward))
            total += float(reward)
            if done:
                break
        running[0] = 0.05 * total + 0.95 * running[0]
        gain, gains = 0.0, []
        for reward in policy.rewards[::-1]:
            gain = reward + 0.99 * gain
            gains.insert(0, gain)
        values = torch.tensor(gains)
        values = (values - values.mean()) / (values.std() + np.finfo(np.float32).eps.item())
        loss = torch.cat([-odds * value for odds, value in zip(policy.saved, values, strict=True)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        policy.saved.clear()
        policy.rewards.clear()
        return total, running[0], loss.item()

    return step, lambda: weights(policy, optimizer)


@program()
def proximal_policy(seed, compile):
    """stable-baselines3's PPO, learning on where it stopped."""
    from stable_baselines3 import PPO

    agent = PPO(
        "MlpPolicy",
        "CartPole-v1",
        n_steps=32,
        batch_size=16,
        n_epochs=2,
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": [16]},
    )

    def step(i):
        agent.learn(32, reset_num_timesteps=False)
        action, _ = agent.predict(np.zeros((1, 4), dtype=np.float32), deterministic=True)
        return agent.num_timesteps, action

    return step, lambda: weights(agent.policy)


@program()
def actor_and_critic(seed, compile):
    """Several environments at once, generalized advantages computed from behind, minibatches of a shuffled order."""
    actor, critic = (
        nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2)),
        nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)),
    )
    parts = nn.ModuleList([actor, critic])
    optimizer, now = torch.optim.Adam(parts.parameters(), 2.5e-3, eps=1e-5), {"state": torch.zeros(4, 3)}

    def step(update):
        optimizer.param_groups[0]["lr"] = (1 - update / 50) * 2.5e-3
        states, actions, odds, rewards, values, ends = (
            torch.zeros(8, 4, *shape) for shape in ((3,), (), (), (), (), ())
        )
        for at in range(8):
            with torch.no_grad():
                drawn = torch.distributions.Categorical(logits=actor(now["state"]))
                action = drawn.sample()
                states[at], actions[at], odds[at], values[at] = (
                    now["state"],
                    action,
                    drawn.log_prob(action),
                    critic(now["state"]).flatten(),
                )
            moved = now["state"] + 0.1 * torch.randn(4, 3) + (action[:, None] - 0.5) * 0.2
            ends[at], rewards[at] = (moved.norm(dim=1) > 1).float(), -moved.norm(dim=1)
            now["state"] = torch.where(ends[at][:, None] > 0, 0.0, moved)
        with torch.no_grad():
            ahead, last, gains = critic(now["state"]).flatten(), 0.0, torch.zeros_like(rewards)
            for at in reversed(range(8)):
                delta = rewards[at] + 0.99 * ahead * (1 - ends[at]) - values[at]
                gains[at] = last = delta + 0.99 * 0.95 * (1 - ends[at]) * last
                ahead = values[at]
        flat = [each.flatten(0, 1) for each in (states, actions, odds, gains, gains + values)]
        order, clipped = np.arange(32), []
        for _ in range(2):
            np.random.shuffle(order)
            for start in range(0, 32, 16):
                s, a, o, g, r = (each[order[start : start + 16]] for each in flat)
                found = torch.distributions.Categorical(logits=actor(s))
                ratio = (found.log_prob(a) - o).exp()
                clipped.append(((ratio - 1.0).abs() > 0.2).float().mean().item())
                g = (g - g.mean()) / (g.std() + 1e-8)
                policy = torch.max(-g * ratio, -g * torch.clamp(ratio, 0.8, 1.2)).mean()
                loss = policy - 0.01 * found.entropy().mean() + 0.5 * 0.5 * ((critic(s).flatten() - r) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.parameters(), 0.5)
                optimizer.step()
        return loss.item(), float(np.mean(clipped))

    return step, lambda: weights(parts, optimizer)
